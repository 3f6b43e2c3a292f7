import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/** Bytes in, one value per line; what Kafka's consumer reads in them out, and what it would write. */
public class KafkaReads {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode wanted = JSON.readTree(line);
            ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(wanted.get("bytes").asText()));
            short version = (short) wanted.get("version").asInt();
            ObjectNode answer = JSON.createObjectNode();
            if (wanted.get("kind").asText().equals("subscription")) {
                read(ConsumerProtocol.deserializeSubscription(bytes), version, answer);
            } else {
                read(ConsumerProtocol.deserializeAssignment(bytes), version, answer);
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
    }

    private static void read(Subscription found, short version, ObjectNode answer) {
        var topics = answer.putArray("topics");
        found.topics().forEach(topics::add);
        partitions(found.ownedPartitions(), answer);
        answer.put("user_data", base64(found.userData()));
        answer.put("generation", found.generationId().orElse(-1));
        answer.put("rack", found.rackId().orElse(null));
        answer.put("written", base64(ConsumerProtocol.serializeSubscription(found, version)));
    }

    private static void read(Assignment found, short version, ObjectNode answer) {
        partitions(found.partitions(), answer);
        answer.put("user_data", base64(found.userData()));
        answer.put("written", base64(ConsumerProtocol.serializeAssignment(found, version)));
    }

    private static void partitions(List<TopicPartition> found, ObjectNode answer) {
        var rows = answer.putArray("partitions");
        found.forEach(each -> rows.addArray().add(each.topic()).add(each.partition()));
    }

    private static String base64(ByteBuffer bytes) {
        if (bytes == null) {
            return null;
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }
}
