package serving_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
)

// Whatever the number of parties and the length of their names, the summary stays below the server's limit of 400
// bytes, of which the text of a step takes a tenth.
func TestSummaryNames_FitServerLimit(t *testing.T) {
	alice, bob := serving.PartyTarget{Domain: "alice"}, serving.PartyTarget{Domain: "bob"}
	require.Equal(t, "alice", serving.SummaryNames([]serving.PartyTarget{alice}))
	require.Equal(t, "alice, bob", serving.SummaryNames([]serving.PartyTarget{alice, bob}))
	require.Equal(t, "alice, bob and 2 more", serving.SummaryNames([]serving.PartyTarget{alice, bob, alice, bob}))
	long := serving.PartyTarget{Domain: strings.Repeat("d", 63), Role: strings.Repeat("r", 63)}
	many := make([]serving.PartyTarget, 1000)
	for i := range many {
		many[i] = long
	}
	require.Less(t, len(serving.SummaryNames(many)), 350)
}
