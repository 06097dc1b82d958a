package plans

import (
	"crypto/rand"
	"crypto/sha256"
	"regexp"
	"strings"
	"time"

	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/strictyaml"
)

// newTaskID is an ID that nobody has: "<plan>-<yyyymmddhhmmss>-<5 random letters and digits>".
func newTaskID(planName string, now time.Time) string {
	return start.NamePrefix(planName) + "-" + now.Format("20060102150405") + "-" + strings.ToLower(rand.Text()[:5])
}

// keyedTaskID is the ID that belongs to an Idempotency-Key, so that two requests at once make one task. after is the task that the key made
// more than 30 days ago, if any: the key then stands for a new one.
func keyedTaskID(planName, key, after string) string {
	digest := sha256.Sum256([]byte(key + "\n" + after))
	return start.NamePrefix(planName) + "-" + start.LowerBase32.EncodeToString(digest[:10])
}

// legalTaskID is what the functions above make; nothing else can be the ID of a task.
var legalTaskID = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)

func isTaskID(id string) bool { return len(id) <= 63 && legalTaskID.MatchString(id) }

// itemField is the field that an error about item n, an index into the document, points at.
func itemField(n int) string {
	return strictyaml.Join(strictyaml.Index("deployPlanItems", n), "serviceId")
}
