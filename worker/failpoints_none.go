//go:build !failpoints

package worker

// ThisBuild returns the ID of this build.
func ThisBuild(id string) string { return id }

func cacheSize() int { return maxCachedWorkflows }
