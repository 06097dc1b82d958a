package scriptbox_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/traffic/scriptbox"
	"slipway.io/slipway/release/rollout/traffic/sandbox"
	"slipway.io/slipway/test/memory"
	"slipway.io/slipway/test/race"
)

// sandboxes returns the anonymous memory of this process's children that run scripts, in bytes, and the smallest
// oom_score_adj of those that take memory already; -1 without any.
func sandboxes() (sum, count, score int) {
	score = -1
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		command, _ := os.ReadFile(folder + "/cmdline")
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || !bytes.Contains(command, []byte(scriptbox.Argument)) ||
			memory.Number(pid, "PPid") != int64(os.Getpid()) {
			continue
		}
		taken := int(memory.Of(pid, memory.Anonymous))
		sum, count = sum+taken, count+1
		if taken < 40<<20 {
			continue
		}
		raw, err := os.ReadFile(folder + "/oom_score_adj")
		if own, wrong := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && wrong == nil &&
			(score < 0 || own < score) {
			score = own
		}
	}
	return sum, count, score
}

// Four scripts that take all memory that they get run two at a time, each with its own limit, and are the first that
// the kernel ends. The test watches all children of the process, so it doesn't run in parallel.
func TestRunner_BoundsMemoryOfAllScripts(t *testing.T) {
	race.SkipBounds(t)
	runner, err := scriptbox.NewRunner(nil)
	require.NoError(t, err)
	greedy := []string{
		"local s = 'x'\nwhile true do s = s .. s end",
		"local t = {}\nwhile true do t[#t+1] = {1, 2, 3} end",
		"local s = string.rep('x', 60000)\nlocal t = {}\nwhile true do t[#t+1] = s .. #t end",
		"local s = string.rep('x', 60000)\nwhile true do s = string.gsub(s, 'x', 'xxxx') end",
	}
	var work sync.WaitGroup
	reasons := make([]string, len(greedy))
	for i, source := range greedy {
		work.Go(func() {
			answer, err := runner.Run(t.Context(), sandbox.Request{Script: "greedy.lua",
				Source: fmt.Sprintf("%s -- %d", source, i), Input: []byte(`{}`)})
			switch {
			case err != nil:
				reasons[i] = err.Error()
			case answer.Trouble != nil:
				reasons[i] = answer.Trouble.Reason
			}
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	peak, together, score := 0, 0, -1
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(time.Millisecond):
			sum, count, own := sandboxes()
			peak, together = max(peak, sum), max(together, count)
			if own >= 0 && (score < 0 || own < score) {
				score = own
			}
		}
	}
	t.Logf("%d scripts at once took %d MiB at most; %q", together, peak>>20, reasons)
	for _, reason := range reasons {
		require.Regexp(t, "^it (needed more than 64 MiB of memory|ran longer than 1s)$", reason)
	}
	require.LessOrEqual(t, together, 2)
	require.Less(t, peak, 2*(96+24)<<20, "the limit of each, and what the process takes at its start")
	require.Equal(t, 1000, score, "the scripts end before the worker does when memory is short")
}

// A script that needs nearly all of its 64 MiB, and makes much garbage, runs to its end.
func TestRunner_RunsLargeScripts(t *testing.T) {
	race.SkipBounds(t)
	runner, err := scriptbox.NewRunner(nil)
	require.NoError(t, err)
	for name, source := range map[string]string{
		"strings": "local s, t = string.rep('x', 50000), {}\nfor i = 1, 800 do t[i] = s .. i end\nreturn #t",
		"garbage": "local s, n = string.rep('x', 60000), 0\nfor i = 1, 4000 do n = n + #(s .. i) end\nreturn 800",
	} {
		answer, err := runner.Run(t.Context(), sandbox.Request{Script: name, Source: source, Input: []byte(`{}`)})
		require.NoError(t, err, name)
		require.Nil(t, answer.Trouble, name)
		require.JSONEq(t, "800", string(answer.Output), name)
	}
}
