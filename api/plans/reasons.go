package plans

import (
	"cmp"
	"encoding/json"
	"slices"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
)

// maxFindings is the maximum size of what an answer lists about the items of a plan, as JSON.
const maxFindings = 1 << 20

// limitFindings sorts findings of preflights by item, and bounds them: rollout.MaxReasons for each item, and
// maxFindings in all. Every item keeps its first ones, and the number of its others.
func limitFindings(all []schema.FieldProblem) []schema.FieldProblem {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b schema.FieldProblem) int { return cmp.Compare(a.Item, b.Item) })
	limited := firstOfItems(all, rollout.MaxReasons)
	for most := rollout.MaxReasons; most > 1 && isTooLarge(limited); {
		most /= 2
		limited = firstOfItems(all, most)
	}
	for longest := rollout.MaxReason; longest > len("…") && isTooLarge(limited); longest /= 2 {
		for i := range limited {
			limited[i].Reason = phrase.Cut(limited[i].Reason, longest)
		}
	}
	return limited
}

// firstOfItems returns the first findings of each item, and how many more there are. The list is sorted by item.
func firstOfItems(sorted []schema.FieldProblem, most int) (first []schema.FieldProblem) {
	for begin := 0; begin < len(sorted); {
		item, end := sorted[begin].Item, begin
		for end < len(sorted) && sorted[end].Item == item {
			end++
		}
		kept := min(end, begin+most)
		first = append(first, sorted[begin:kept]...)
		if more := end - kept; more > 0 {
			last := sorted[kept]
			last.Reason = rollout.MoreReasons(more)
			first = append(first, last)
		}
		begin = end
	}
	return first
}

func isTooLarge(findings []schema.FieldProblem) bool {
	text, err := json.Marshal(findings)
	return err == nil && len(text) > maxFindings
}
