//go:build failpoints

package failpoint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHit(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		armed  string
		hits   []string
		killed []int
	}{
		"name": {"the first hit of that name kills, and only once", `{"name":"b"}`, []string{"a", "b", "b"},
			[]int{1}},
		"name, later": {"the first hits of the name pass", `{"name":"b","after":1}`, []string{"b", "a", "b", "b"},
			[]int{2}},
		"any name":  {"the first hits of any name pass", "{\"after\":2}\n", []string{"a", "b", "c", "d"}, []int{2}},
		"not armed": {"nothing is killed without an arming", "", []string{"a"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var killed []int
			at := 0
			p := &points{file: filepath.Join(dir, "arm"), log: filepath.Join(dir, "log"), kill: func() {
				killed = append(killed, at)
			}}
			if tc.armed != "" {
				require.NoError(t, os.WriteFile(p.file, []byte(tc.armed), 0o600))
			}
			for i, hit := range tc.hits {
				at = i
				p.hit(hit)
			}
			require.Equal(t, tc.killed, killed, tc.reason)
			log, err := os.ReadFile(p.log)
			require.NoError(t, err)
			var lines []string
			for _, line := range strings.Fields(strings.ReplaceAll(string(log), "killed ", "killed:")) {
				if !strings.HasPrefix(line, "killed:") {
					lines = append(lines, line)
				}
			}
			require.Equal(t, tc.hits, lines, "every hit is logged in order")
		})
	}
}

func TestAround_HitsBothPoints_AlsoWhenWriteFails(t *testing.T) {
	t.Parallel()
	p := &points{log: filepath.Join(t.TempDir(), "log")}
	err := p.around("a", func() error {
		p.hit("write")
		return os.ErrDeadlineExceeded
	})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the error of the write is returned")
	log, err := os.ReadFile(p.log)
	require.NoError(t, err)
	require.Equal(t, "a.before\nwrite\na.after\n", string(log))
}

func TestHitCountsFromTheArming(t *testing.T) {
	t.Parallel()
	kills := 0
	p := &points{file: filepath.Join(t.TempDir(), "arm"), kill: func() { kills++ }}
	p.hit("a")
	require.NoError(t, os.WriteFile(p.file, []byte(`{"after":1}`), 0o600))
	p.hit("a")
	require.Zero(t, kills, "the hit before the arming must not count")
	p.hit("a")
	require.Equal(t, 1, kills)
}

func TestHitPanics_WhenArmingInvalid(t *testing.T) {
	t.Parallel()
	p := &points{file: filepath.Join(t.TempDir(), "arm"), kill: func() {}}
	require.NoError(t, os.WriteFile(p.file, []byte(`{"nmae":"a"}`), 0o600))
	require.Panics(t, func() { p.hit("a") }, "a misspelt arming must fail the test")
}

// TestHitKills is run twice: the inner run, armed, must die of SIGKILL.
func TestHitKills(t *testing.T) {
	if os.Getenv("FAILPOINT_INNER") != "" {
		Hit("here")
		return
	}
	arm := filepath.Join(t.TempDir(), "arm")
	run := func() error {
		cmd := exec.Command(os.Args[0], "-test.run=TestHitKills")
		cmd.Env = append(os.Environ(), "FAILPOINT_INNER=1", "SLIPWAY_FAILPOINTS_FILE="+arm)
		return cmd.Run()
	}
	require.NoError(t, os.WriteFile(arm, []byte(`{"name":"here"}`), 0o600))
	var exit *exec.ExitError
	require.ErrorAs(t, run(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "the process must not run any cleanup")
	require.NoError(t, run(), "the arming is used up: the next process lives")
}
