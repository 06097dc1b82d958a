package operation_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workload"
)

// Records, histories and clients have the fields of a change beside the others, not in an object of their own.
func TestFieldsOfAChange_AreNotNestedInJSON(t *testing.T) {
	t.Parallel()
	change := revision.Change{FromRevision: "1", ToRevision: "2", FromReplicas: n(3), ToReplicas: n(0),
		FromPackage: "a", ToPackage: "b", Before: &revision.Revision{Name: "x"}, After: &revision.Revision{Name: "y"}}
	const fields = `"fromRevision":"1","toRevision":"2","fromReplicas":3,"toReplicas":0,"fromPackage":"a",` +
		`"toPackage":"b","before":{"name":"x"},"after":{"name":"y"}`
	for want, value := range map[string]any{
		`{"message":"m","changed":true,` + fields + `}`: workload.Result{Message: "m", Changed: true, Change: change},
		`{"changed":true,` + fields + `}`:               failure.Effect{Changed: true, Change: change},
		`{"party":"","namespace":"","kind":"","name":"","state":"","message":"",` + fields +
			`,"changed":true}`: plan.WorkloadStatus{Changed: true, Change: change},
	} {
		raw, err := json.Marshal(value)
		require.NoError(t, err)
		require.Equal(t, want, string(raw), "%T", value)
	}
}
