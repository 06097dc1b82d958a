package workflows_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/workflows"
)

func TestFitList_TruncatesToSearchAttributeLimit(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"111", "222"}, workflows.FitList([]string{"111", "222"}), "a list that fits is unchanged")
	var many []string
	for range 1000 {
		many = append(many, "service-with-a-name")
	}
	cutList := workflows.FitList(many)
	require.Equal(t, "…", cutList[len(cutList)-1], "a marker shows the cut")
	encoded, err := json.Marshal(cutList)
	require.NoError(t, err)
	require.Less(t, len(encoded), 2048, "the server accepts no more")
	require.Greater(t, len(encoded), 1800, "as much as fits is kept")
	require.Len(t, many, 1000, "the input is unchanged")
}
