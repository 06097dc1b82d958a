package plans

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/schema"
)

// findingsOf returns findings of items 1 to n in a mixed order, each with a reason of this length.
func findingsOf(items, each, length int) (all []schema.FieldProblem) {
	for n := range each {
		for item := range items {
			all = append(all, schema.FieldProblem{Item: (item*7)%items + 1, Field: "deployPlanItems[0].serviceId",
				Reason: fmt.Sprintf("%d %s", n, strings.Repeat("<", length))})
		}
	}
	return all
}

func TestLimitFindings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason              string
		items, each, length int
		wantEach            int
		wantMore            string
		wantWhole           bool
	}{
		"Few":     {"nothing is left out", 10, 3, 100, 3, "", true},
		"Many":    {"20 reasons of each item", 10, 150, 20, 21, "and 130 more reasons, not listed here", true},
		"One":     {"one more than 20", 10, 21, 20, 21, "and 1 more reason, not listed here", true},
		"Large":   {"fewer of each if all are too large", 1000, 20, 50, 3, "and 18 more reasons, not listed here", true},
		"Longest": {"at last texts are shortened", 1000, 150, 900, 2, "and 149 more reasons, not listed here", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := findingsOf(c.items, c.each, c.length)
			limited := limitFindings(all)
			text, err := json.Marshal(limited)
			require.NoError(t, err)
			require.LessOrEqual(t, len(text), 1<<20)
			perItem := map[int]int{}
			for _, one := range limited {
				perItem[one.Item]++
			}
			require.Len(t, perItem, c.items, "every item is answered")
			for item, n := range perItem {
				require.Equal(t, c.wantEach, n, "item %d: %s", item, c.reason)
			}
			require.True(t, slices.IsSortedFunc(limited, func(a, b schema.FieldProblem) int { return a.Item - b.Item }))
			require.True(t, strings.HasPrefix(limited[0].Reason, "0 <"), "the first reason of each item stays")
			require.Equal(t, c.wantWhole, len(limited[0].Reason) == c.length+2)
			if c.wantMore != "" {
				require.Equal(t, c.wantMore, limited[c.wantEach-1].Reason)
			}
			require.Equal(t, limited, limitFindings(all), "the same findings have the same answer")
		})
	}
	require.Empty(t, limitFindings(nil))
}
