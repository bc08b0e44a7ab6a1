// Kafka's own assignors, a line of JSON in, a line of JSON out; see oracle.py and kafka.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class KafkaAssignors {
    static final ObjectMapper JSON = new ObjectMapper();
    // Of this thread's processor: others have work on the machine too.
    static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever logs there is no answer
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            } catch (Exception failed) {
                out.println("error " + failed);
            }
        }
    }

    // {"strategy", "topics": {name: [[rack of a replica, ...] of each partition]}, "rounds", "members": [{"id", "topics",
    //  "instance"?, "rack"?, "generation", "owned": {topic: [number]}}]} -> {"plan": {id: {topic: [number]}}, "ms": [of each round]}
    static ObjectNode answer(JsonNode asked) {
        Cluster cluster = cluster(asked.get("topics"));
        Map<String, Assignment> plan = Map.of();
        ObjectNode answer = JSON.createObjectNode();
        var took = answer.putArray("ms");
        for (int round = 0; round < asked.get("rounds").asInt(); round++) {
            ConsumerPartitionAssignor assignor = assignor(asked.get("strategy").asText());
            // Made anew each time: reading the owned partitions moves the buffer on.
            Map<String, Subscription> members = new HashMap<>();
            for (JsonNode member : asked.get("members")) {
                members.put(member.get("id").asText(), subscription(assignor, member));
            }
            long began = CLOCK.getCurrentThreadCpuTime();
            plan = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
            took.add((CLOCK.getCurrentThreadCpuTime() - began) / 1e6);
        }
        ObjectNode owners = answer.putObject("plan");
        plan.forEach((id, assignment) -> {
            ObjectNode topics = owners.putObject(id);
            Map<String, ArrayNode> numbers = new HashMap<>();
            for (TopicPartition each : assignment.partitions()) {
                numbers.computeIfAbsent(each.topic(), topics::putArray).add(each.partition());
            }
        });
        return answer;
    }

    static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    static Subscription subscription(ConsumerPartitionAssignor assignor, JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        member.get("owned").fields().forEachRemaining(entry ->
            entry.getValue().forEach(number -> owned.add(new TopicPartition(entry.getKey(), number.asInt()))));
        int generation = member.get("generation").asInt();
        ByteBuffer userData = null;
        if (assignor instanceof StickyAssignor && !owned.isEmpty()) {
            // It reads what a member had from bytes that only it can write: as a member does after an assignment.
            StickyAssignor theirs = new StickyAssignor();
            theirs.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, "", Optional.empty()));
            userData = theirs.subscriptionUserData(new HashSet<>(topics));
        }
        Optional<String> rack = Optional.ofNullable(member.get("rack")).map(JsonNode::asText);
        Subscription made = new Subscription(topics, userData, owned, generation, rack);
        made.setGroupInstanceId(Optional.ofNullable(member.get("instance")).map(JsonNode::asText));
        return made;
    }

    static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                racks.forEach(rack -> replicas.add(
                    nodes.computeIfAbsent(rack.asText(), name -> new Node(nodes.size(), "h", 1, name))));
                Node[] at = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), number++, at.length == 0 ? Node.noNode() : at[0], at, at));
            }
        });
        return new Cluster("c", nodes.values(), partitions, Set.of(), Set.of());
    }
}
