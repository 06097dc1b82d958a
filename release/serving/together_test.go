package serving_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
)

// However many parties there are and however long their names, the server takes the summary that names them: 400 bytes, of which a step's own words take a tenth.
func TestNames(t *testing.T) {
	alice, bob := serving.PartyTarget{Domain: "alice"}, serving.PartyTarget{Domain: "bob"}
	require.Equal(t, "alice", serving.Names([]serving.PartyTarget{alice}))
	require.Equal(t, "alice, bob", serving.Names([]serving.PartyTarget{alice, bob}))
	require.Equal(t, "alice, bob and 2 more", serving.Names([]serving.PartyTarget{alice, bob, alice, bob}))
	long := serving.PartyTarget{Domain: strings.Repeat("d", 63), Role: strings.Repeat("r", 63)}
	many := make([]serving.PartyTarget, 1000)
	for i := range many {
		many[i] = long
	}
	require.Less(t, len(serving.Names(many)), 350)
}
