import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's Java clients in a test's hands. Each line is a question and gets one line; fields stand between tabs.
 *
 * check KEY=VALUE...             -> ok, or what the consumer says of the configuration
 * group SERVERS NAME KEY=VALUE.. -> ok, or what the brokers say of the group's configuration
 * start NAME TOPIC KEY=VALUE...  -> ok: a member that reads, and commits what it has read before it goes
 * stop NAME                      -> ok when it has closed its consumer, or why it ended before
 * events                         -> what happened since the last time: NAME gained | given | lost | read NUMBER...
 *                                   with a semicolon between two; read is followed by partition and offset
 */
public class JavaGroup {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();
    private static final Queue<String> EVENTS = new ConcurrentLinkedQueue<>();

    public static void main(String[] none) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // a logger writes there, between the answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] said = line.split("\t");
            out.println(answer(said).replace('\n', ' '));
            out.flush();
        }
        System.exit(0);
    }

    private static String answer(String[] said) throws Exception {
        switch (said[0]) {
            case "check":
                return check(properties(said, 1));
            case "group":
                return group(said[1], said[2], properties(said, 3));
            case "start":
                Member member = new Member(said[1], said[2], properties(said, 3));
                MEMBERS.put(said[1], member);
                member.start();
                return "ok";
            case "stop":
                Member stopped = MEMBERS.remove(said[1]);
                stopped.stopping = true;
                stopped.join();
                return stopped.reason;
            case "events":
                List<String> found = new ArrayList<>();
                for (String each = EVENTS.poll(); each != null; each = EVENTS.poll()) {
                    found.add(each);
                }
                return String.join(";", found);
            default:
                return "error: " + said[0];
        }
    }

    private static Properties properties(String[] said, int from) {
        Properties found = new Properties();
        for (int i = from; i < said.length; i++) {
            String[] parts = said[i].split("=", 2);
            found.put(parts[0], parts[1]);
        }
        return found;
    }

    /** What the client says of a configuration: nothing reaches a broker. */
    private static String check(Properties conf) {
        List<String> unknown = new ArrayList<>();
        for (String name : conf.stringPropertyNames()) {
            if (!ConsumerConfig.configNames().contains(name)) {
                unknown.add(name);
            }
        }
        if (!unknown.isEmpty()) {
            return "unknown: " + unknown;
        }
        try {
            new KafkaConsumer<>(conf, new ByteArrayDeserializer(), new ByteArrayDeserializer()).close();
            return "ok";
        } catch (Exception error) {
            return error + (error.getCause() == null ? "" : ": " + error.getCause());
        }
    }

    private static String group(String servers, String name, Properties conf) throws Exception {
        List<AlterConfigOp> wanted = new ArrayList<>();
        for (String key : conf.stringPropertyNames()) {
            wanted.add(new AlterConfigOp(new ConfigEntry(key, conf.getProperty(key)), AlterConfigOp.OpType.SET));
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, name);
            admin.incrementalAlterConfigs(Map.of(resource, wanted)).all().get();
            return "ok";
        } catch (ExecutionException refused) {
            return String.valueOf(refused.getCause());
        }
    }

    /** A loop written with care: what was read is committed before it goes. */
    private static final class Member extends Thread implements ConsumerRebalanceListener {
        volatile boolean stopping;
        volatile String reason = "ok";
        private final String name;
        private final String topic;
        private final Properties conf;
        private final Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
        private KafkaConsumer<byte[], byte[]> consumer;

        Member(String name, String topic, Properties conf) {
            this.name = name;
            this.topic = topic;
            this.conf = conf;
        }

        @Override
        public void run() {
            try (var made = new KafkaConsumer<>(conf, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer = made;
                consumer.subscribe(List.of(topic), this);
                while (!stopping) {
                    for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(50))) {
                        EVENTS.add(name + " read " + each.partition() + " " + each.offset());
                        done.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
                    }
                    commit();
                }
            } catch (Exception error) {
                reason = String.valueOf(error);
            }
        }

        private void commit() {
            if (done.isEmpty()) {
                return;
            }
            try {
                consumer.commitSync(done);
                done.clear();
            } catch (RebalanceInProgressException | RetriableException later) {
                // Once more after the next poll, or when the partition goes.
            } catch (CommitFailedException gone) {
                done.clear();
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("gained", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit();
            done.keySet().removeAll(partitions);
            tell("given", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            done.keySet().removeAll(partitions);
            tell("lost", partitions);
        }

        private void tell(String what, Collection<TopicPartition> partitions) {
            StringBuilder event = new StringBuilder(name + " " + what);
            partitions.stream().map(TopicPartition::partition).sorted().forEach(each -> event.append(" ").append(each));
            EVENTS.add(event.toString());
        }
    }
}
