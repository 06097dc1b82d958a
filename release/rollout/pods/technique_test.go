package pods

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/workload"
)

// The table of kinds names only styles for which its means have a technique.
func TestEveryStyleOfEveryKind_HasTechnique(t *testing.T) {
	t.Parallel()
	for _, k := range workload.Kinds {
		for _, style := range k.Styles {
			require.NotNil(t, technique(k, style), "%s in style %s", k.Key(), style)
		}
	}
}
