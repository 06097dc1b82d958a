package memory

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumber_IsThatOfProcess(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, os.Getppid(), Number(os.Getpid(), "PPid"))
	now, peak := Of(os.Getpid(), Resident), Of(os.Getpid(), Peak)
	require.Greater(t, now, int64(1<<20), "this process has a few MiB")
	require.GreaterOrEqual(t, peak, Of(os.Getpid(), Anonymous))
	require.Zero(t, Of(1<<30, Resident), "no process has this number")
}
