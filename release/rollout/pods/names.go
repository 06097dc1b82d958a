package pods

import (
	"crypto/sha256"
	"encoding/hex"
)

// labelLimit is the longest value of a label (Kubernetes API).
const labelLimit = 63

// CanaryOf is the value of rollout.LabelCanaryOf for a workload: its name; its SHA-256, shortened, when that is longer than a label may be.
func CanaryOf(name string) string {
	if len(name) <= labelLimit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:labelLimit-7]
}
