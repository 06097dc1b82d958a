package worker

import "go.temporal.io/sdk/worker"

// mostKept is how many workflows a process keeps in memory between their tasks, some 100 KiB each. Releases wait for people for days: whichever was not needed
// for longest is read from its history when it is needed again.
const mostKept = 200

// The size holds for the whole process, and has to be set before its first worker.
func init() { worker.SetStickyWorkflowCacheSize(keptWorkflows()) }
