// RocketMQ's own allocation strategies, a line of JSON in, a line of JSON out; see oracle.py and rocketmq.py.

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

public class RocketMQStrategies {
    static final Gson JSON = new Gson();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever logs there is no answer
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(JSON.toJson(answer(JsonParser.parseString(line).getAsJsonObject())));
            } catch (Exception failed) {
                out.println("error " + failed);
            }
        }
    }

    // {"strategy": {...}, "clients": [id], "queues": [[topic, broker, number]]} -> {"name", "plan": {id: [[index of a queue]]}}.
    // Topic by topic, with both lists sorted, and each client for itself: as RebalanceImpl.rebalanceByTopic does.
    static JsonObject answer(JsonObject asked) {
        List<String> clients = strings(asked.getAsJsonArray("clients"));
        Collections.sort(clients);
        Map<String, List<MessageQueue>> topics = new TreeMap<>();
        Map<MessageQueue, Integer> numbers = new HashMap<>();
        for (MessageQueue queue : queues(asked.getAsJsonArray("queues"))) {
            numbers.put(queue, numbers.size());
            topics.computeIfAbsent(queue.getTopic(), topic -> new ArrayList<>()).add(queue);
        }
        JsonObject plan = new JsonObject();
        String name = "";
        for (String client : clients) {
            AllocateMessageQueueStrategy strategy = strategy(asked.getAsJsonObject("strategy"), client);
            name = strategy.getName();
            JsonArray has = new JsonArray();
            for (List<MessageQueue> all : topics.values()) {
                Collections.sort(all);
                for (MessageQueue queue : strategy.allocate("g", client, all, clients)) {
                    // A configured list comes whole for each topic.
                    if (queue.getTopic().equals(all.get(0).getTopic()) && numbers.containsKey(queue)) {
                        has.add(numbers.get(queue));
                    }
                }
            }
            plan.add(client, has);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("name", name);
        answer.add("plan", plan);
        return answer;
    }

    static AllocateMessageQueueStrategy strategy(JsonObject said, String client) {
        switch (said.get("name").getAsString()) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(said.get("virtual_nodes").getAsInt());
            case "CONFIG":
                AllocateMessageQueueByConfig fixed = new AllocateMessageQueueByConfig();
                JsonElement list = said.getAsJsonObject("queues").get(client);
                fixed.setMessageQueueList(list == null ? List.of() : queues(list.getAsJsonArray()));
                return fixed;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(strings(said.getAsJsonArray("rooms"))));
                return rooms;
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(strategy(said.getAsJsonObject("inner"), client), new BeforeTheSign());
            default:
                throw new IllegalArgumentException(said.toString());
        }
    }

    static class BeforeTheSign implements AllocateMachineRoomNearby.MachineRoomResolver {
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@", -1)[0];
        }

        public String consumerDeployIn(String client) {
            return client.split("@", -1)[0];
        }
    }

    static List<String> strings(JsonArray values) {
        List<String> found = new ArrayList<>();
        values.forEach(each -> found.add(each.getAsString()));
        return found;
    }

    static List<MessageQueue> queues(JsonArray values) {
        List<MessageQueue> found = new ArrayList<>();
        for (JsonElement each : values) {
            JsonArray parts = each.getAsJsonArray();
            found.add(new MessageQueue(parts.get(0).getAsString(), parts.get(1).getAsString(), parts.get(2).getAsInt()));
        }
        return found;
    }
}
