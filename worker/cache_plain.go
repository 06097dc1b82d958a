//go:build !failpoints

package worker

func cacheSize() int { return maxCachedWorkflows }
