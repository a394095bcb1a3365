--- Submit a graph of one queue, or a part of one: jobs, and which of them wait for which others, all or nothing.
--- @queue   id!
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   metrics_failed       hash         failures per minute
--- @key   ratelimited          zset         groups that wait for their limits
--- @key   flow                 hash         the flow's record
--- @key   flows                zset         ids of flows by time of creation
--- @arg   now_ms               int          epoch ms
--- @arg   held                 flag         nothing starts before `oq1_releaseGraph` names it
--- @arg   flow_id              text         what the jobs belong to; empty for none
--- @arg   record               json         what the flow's record says of its plan; empty to write no record
--- @arg   node_count           int #nodes   how many follow
--- @arg   edge_count           int #edges   how many follow
--- @arg   foreign_count        int #foreign how many follow
--- @arg   outside_count        int #outside how many follow
--- @arg   rule_count           int #rules   how many follow
--- @each    nodes NewJob: a job of the graph, with a custom id and without a parent; it comes before those it waits for
--- @like    addJob.job
--- @end     nodes
--- @each    edges GraphEdge: one job waits for another
--- @arg   dependent            int          place of the job that waits among the nodes, from 1
--- @arg   dependency           int          place of the job it waits for
--- @arg   weak                 flag =0      it counts as completed with any outcome
--- @end     edges
--- @each    foreign ForeignDependency: one job waits for another that is not in this call
--- @arg   dependent            int          place of the job that waits among the nodes, from 1
--- @arg   member               text         the job it waits for, `prefix:{queue}:id`
--- @arg   weak                 flag =0      it counts as completed with any outcome
--- @end     foreign
--- @each    outside ForeignDependent: a job that is not in this call waits for one of these
--- @arg   dependency           int          place of the job it waits for among the nodes, from 1
--- @arg   queue_name           text         its queue
--- @arg   job_id               text         its id
--- @end     outside
--- @each    rules NodeRule: a job that does not wait for the success of all
--- @arg   place                int          its place among the nodes, from 1
--- @arg   rule                 text         its trigger rule, such as `all_done`
--- @end     rules
--- @returns array 1: per node its id, or `duplicate` if it existed, and only its dependents were notified; 2: queue, dependent, member, outcome per job of another queue that waits for one that has ended, to be told there through `oq1_propagate`; 3: ended jobs whose dependents remain to be told through `oq1_propagate`
--- @error   the id key does not end in `:id`; or when a node has no custom id, a parent, or another's id; or when an edge does not lead to a later node, or what is outside has no sensible name, or a rule is unknown; `OQ_TOO_EXPENSIVE` when a node costs more than its token bucket holds
--- @cost    O(log N) per node, O(1) per edge: about 25 us a node and 3 us an edge, so 100 nodes take some 3 ms

local submission = require("submission")

-- A graph of more nodes, or of several queues, is submitted in parts: an edge between two of them is in both, as
-- `foreign` in the dependent's part and as `outside` in the dependency's. `held` then keeps every node from starting
-- before all parts are stored; submitting again completes an interrupted submission.
--
-- The record of the flow is written once, and not replaced; its state is `submitting` while nodes are held.

local graph = { nodes = nodes, edges = edges, foreign = foreign, outside = outside, rules = rules }
submission.check(queue, graph)
if record ~= "" then
  submission.note(flow_key, flows_key, flow_id, record, now_ms, held)
end
return submission.write(queue, graph, now_ms, flow_id, held)
