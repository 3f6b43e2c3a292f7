import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Kafka's own consumer, which tells what it holds.
 *
 * <p>The first line in has its settings and topics, the first line out its version; after that each
 * line out is what it holds from then on. It leaves when there are no more lines in.
 */
public class TalkingConsumer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static volatile boolean isEnding = false;

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode wanted = JSON.readTree(in.readLine());
        say(JSON.createArrayNode().add(AppInfoParser.getVersion()));
        Thread end = new Thread(() -> {
            try {
                in.readLine();
            } catch (java.io.IOException broken) {
                // The other side is gone, which is an end too.
            }
            isEnding = true;
        });
        end.setDaemon(true);
        end.start();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings(wanted.get("settings")))) {
            List<String> topics = new ArrayList<>();
            wanted.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics);
            Set<TopicPartition> told = Set.of();
            while (!isEnding) {
                consumer.poll(Duration.ofMillis(50));
                if (!consumer.assignment().equals(told)) {
                    told = Set.copyOf(consumer.assignment());
                    tell(told);
                }
            }
        }
    }

    private static Properties settings(JsonNode wanted) {
        Properties settings = new Properties();
        wanted.fields().forEachRemaining(
            each -> settings.setProperty(each.getKey(), each.getValue().asText()));
        settings.setProperty("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.setProperty("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    private static void tell(Set<TopicPartition> held) throws Exception {
        ArrayNode rows = JSON.createArrayNode();
        held.forEach(each -> rows.addArray().add(each.topic()).add(each.partition()));
        say(rows);
    }

    private static void say(JsonNode what) throws Exception {
        System.out.println(JSON.writeValueAsString(what));
        System.out.flush();
    }
}
