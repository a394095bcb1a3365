"""The protocol as pure values: keys, calls, replies, records, events. Nothing here sends or waits."""
