package operation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/workload"
)

// borrowable are all settings that an operation may borrow, of any kind of workload.
var borrowable = []string{workload.PathDeploymentUnavailable, workload.PathDeploymentSurge,
	workload.PathUpdateStrategy,
	workload.PathUpdateUnavailable, workload.PathUpdateSurge}

func TestParseOriginal_RefusesFieldThatOperationsDoNotBorrow(t *testing.T) {
	t.Parallel()
	_, err := operation.ParseOriginal(
		`{"operation":"RESTART","borrowed":[{"path":"/spec/template","own":{},"lent":null}]}`, borrowable)
	require.EqualError(t, err, "another client added /spec/template, which no operation borrows")
}
