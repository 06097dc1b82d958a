package rollout

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// answerHolds is how long a command counts as passed on: what a release makes of it changes its workload many times before the object shows it.
const answerHolds = 5 * time.Second

// answers are the commands, starts included, that were passed on last, by their object. It spares requests: a release takes one of a key once.
type answers struct{ remembered[answered] }

type answered struct {
	key string
	at  time.Time
}

func (a *answers) note(name cache.ObjectName, key string, now time.Time) {
	a.put(name, answered{key, now})
}

// holds is for how long a command still counts as passed on; 0: it is to be sent.
func (a *answers) holds(name cache.ObjectName, key string, now time.Time) time.Duration {
	last, _ := a.get(name)
	if key == "" || last.key != key {
		return 0
	}
	return max(last.at.Add(answerHolds).Sub(now), 0)
}
