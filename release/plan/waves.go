package plan

import (
	"cmp"
	"slices"
)

// Wave is a group of items that are released together: those of equal priority.
type Wave struct {
	Priority int64 `json:"priority"`
	// Items are indexes into the document's items, counted from 0, in the document's order.
	Items []int `json:"items"`
}

// Waves returns the items grouped by priority, the largest first (source document, key `priority`).
func (d Document) Waves() []Wave {
	return groupByPriority(len(d.Items), func(i int) int64 { return d.Items[i].Priority })
}

// Waves returns the task's services grouped by priority, the largest first; the waves index into Services.
func (t Task) Waves() []Wave {
	return groupByPriority(len(t.Services), func(i int) int64 { return t.Services[i].Priority })
}

func groupByPriority(n int, priority func(int) int64) (waves []Wave) {
	for i := range n {
		at := slices.IndexFunc(waves, func(w Wave) bool { return w.Priority == priority(i) })
		if at < 0 {
			at, waves = len(waves), append(waves, Wave{Priority: priority(i)})
		}
		waves[at].Items = append(waves[at].Items, i)
	}
	slices.SortFunc(waves, func(a, b Wave) int { return cmp.Compare(b.Priority, a.Priority) })
	return waves
}
