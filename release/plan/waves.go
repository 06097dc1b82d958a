package plan

import (
	"cmp"
	"slices"
)

// Wave is what is released together: the items of equal priority.
type Wave struct {
	Priority int64 `json:"priority"`
	// Items are indexes into the document's items, counted from 0, in the document's order.
	Items []int `json:"items"`
}

// Waves are the items by priority, the largest first (source document, key `priority`).
func (d Document) Waves() []Wave {
	return groupByPriority(len(d.Items), func(i int) int64 { return d.Items[i].Priority })
}

// Waves are the task's services by priority, the largest first; they index into Services.
func (t Task) Waves() []Wave {
	return groupByPriority(len(t.Services), func(i int) int64 { return t.Services[i].Priority })
}

func groupByPriority(n int, priority func(int) int64) []Wave {
	byPriority := map[int64]int{}
	var waves []Wave
	for i := range n {
		at, known := byPriority[priority(i)]
		if !known {
			at = len(waves)
			byPriority[priority(i)] = at
			waves = append(waves, Wave{Priority: priority(i)})
		}
		waves[at].Items = append(waves[at].Items, i)
	}
	slices.SortFunc(waves, func(a, b Wave) int { return cmp.Compare(b.Priority, a.Priority) })
	return waves
}
