--- Submit a graph of one queue: jobs, and which of them wait for which others, all or nothing.
--- @queue   id!
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @arg   node_count           int #nodes   how many follow
--- @arg   edge_count           int #edges   how many follow
--- @each    nodes NewJob: a job of the graph, with a custom id and without a parent; it stands before those it waits for
--- @like    addJob.job
--- @end     nodes
--- @each    edges GraphEdge: one job waits for another
--- @arg   dependent            int          place of the job that waits among the nodes, from 1
--- @arg   dependency           int          place of the job it waits for
--- @end     edges
--- @returns texts per node its id; or `duplicate` when it was there, and only what waits for it was told of it
--- @error   the id key does not end in `:id`; or when a node has no custom id, a parent, or another's id; or when an edge does not lead to a later node; `OQ_TOO_EXPENSIVE` when a node costs more than its token bucket holds
--- @cost    O(log N) per node, O(1) per edge

local submission = require("submission")

submission.check(queue, nodes, edges)
return submission.write(queue, nodes, edges)
