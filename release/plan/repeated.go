package plan

import (
	"fmt"
	"strings"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// refuseRepeated refuses a service that is named more than once in one wave: the two would change it at the same time. In different waves it
// may be named again.
func (d Document) refuseRepeated(found *strictyaml.Findings) {
	type place struct {
		service  ServiceID
		priority int64
	}
	items := map[place][]int{}
	for i, item := range d.Items {
		if catalog.ValidID(string(item.ServiceID)) != nil || found.Unreadable(itemField(i, keyServiceID)) || found.Unreadable(itemField(i, keyPriority)) {
			continue
		}
		at := place{item.ServiceID, item.Priority}
		items[at] = append(items[at], i)
	}
	for i, item := range d.Items {
		same := items[place{item.ServiceID, item.Priority}]
		if len(same) < 2 || same[1] != i {
			continue // said once, at the second of them
		}
		found.Refuse(i+1, itemField(i, keyServiceID), "names service %s %s in one wave (items %s): %s the priority %d; give each one of its own, or keep one of them",
			item.ServiceID, times(len(same)), numbers(same), allHave(len(same)), item.Priority)
	}
}

func itemField(index int, key string) string {
	return strictyaml.Join(strictyaml.Index(keyItems, index), key)
}

func times(n int) string {
	if n == 2 {
		return "twice"
	}
	return "more than twice"
}

func allHave(n int) string {
	if n == 2 {
		return "both have"
	}
	return "all have"
}

// mostNumbers is how many items a sentence names before it breaks off.
const mostNumbers = 10

// numbers are the items' numbers, counted from 1: "1 and 3", "1, 2 and 5".
func numbers(indexes []int) string {
	shown := indexes[:min(len(indexes), mostNumbers)]
	texts := make([]string, len(shown))
	for i, index := range shown {
		texts[i] = fmt.Sprint(index + 1)
	}
	if rest := len(indexes) - len(shown); rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts, ", "), rest)
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}
