package rollout

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// resendAfter is how long a command is not sent again: the release it triggers changes the workload many times before
// the object shows it.
const resendAfter = 5 * time.Second

// sentCommands are the last sent commands, including starts, by object. It only saves requests: a release accepts a key
// once.
type sentCommands struct{ objectMemory[sentCommand] }

type sentCommand struct {
	key string
	at  time.Time
}

func (a *sentCommands) note(name cache.ObjectName, key string, now time.Time) {
	a.put(name, sentCommand{key, now})
}

// recentlySent returns for how long a command must not be sent again; 0: send it.
func (a *sentCommands) recentlySent(name cache.ObjectName, key string, now time.Time) time.Duration {
	last, _ := a.get(name)
	if key == "" || last.key != key {
		return 0
	}
	return max(last.at.Add(resendAfter).Sub(now), 0)
}
