package worker

import "go.temporal.io/sdk/worker"

// maxCachedWorkflows is how many workflows a process keeps in memory between their tasks, about 100 KiB each. Releases
// wait for users for days: the least recently used one is replayed from its history when needed.
const maxCachedWorkflows = 200

// The size is per process, and has to be set before the first worker starts.
func init() { worker.SetStickyWorkflowCacheSize(cacheSize()) }
