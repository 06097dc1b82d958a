//go:build !failpoints

package worker

func keptWorkflows() int { return mostKept }
