import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** One case per line in, one assignment per line out, computed by Kafka's own assignors. */
public class KafkaPeer {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(JSON.readTree(line)));
            System.out.flush();
        }
    }

    private static ObjectNode answer(JsonNode wanted) {
        Map<String, Subscription> members = new HashMap<>();
        for (JsonNode row : wanted.get("members")) {
            members.put(row.get("id").asText(), subscription(row));
        }
        AbstractPartitionAssignor assignor = assignor(wanted.get("assignor").asText());
        ObjectNode answer = JSON.createObjectNode();
        assignor.assignPartitions(partitions(wanted), members).forEach((member, given) -> {
            ArrayNode list = answer.putArray(member);
            given.forEach(each -> list.addArray().add(each.topic()).add(each.partition()));
        });
        return answer;
    }

    private static AbstractPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static Map<String, List<PartitionInfo>> partitions(JsonNode wanted) {
        Map<String, List<PartitionInfo>> partitions = new HashMap<>();
        wanted.get("partitions").fields().forEachRemaining(entry -> {
            List<PartitionInfo> rows = new ArrayList<>();
            for (int number = 0; number < entry.getValue().asInt(); number++) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : wanted.get("racks").path(entry.getKey()).path(number)) {
                    replicas.add(new Node(replicas.size(), "host", 1, rack.asText()));
                }
                Node[] nodes = replicas.toArray(new Node[0]);
                rows.add(new PartitionInfo(entry.getKey(), number, Node.noNode(), nodes, nodes));
            }
            partitions.put(entry.getKey(), rows);
        });
        return partitions;
    }

    private static Subscription subscription(JsonNode row) {
        List<String> topics = new ArrayList<>();
        row.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        row.get("owned").forEach(each -> owned.add(
            new TopicPartition(each.get(0).asText(), each.get(1).asInt())));
        String data = row.get("user_data").textValue();
        Subscription subscription = new Subscription(
            topics,
            data == null ? null : ByteBuffer.wrap(Base64.getDecoder().decode(data)),
            owned,
            row.get("generation").asInt(),
            Optional.ofNullable(row.get("rack").textValue()));
        subscription.setGroupInstanceId(Optional.ofNullable(row.get("instance").textValue()));
        return subscription;
    }
}
