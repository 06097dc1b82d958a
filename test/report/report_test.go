package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	passing = `{"Action":"run","Package":"slipway.io/slipway/release/plan","Test":"TestWaves"}
{"Action":"run","Package":"slipway.io/slipway/release/plan","Test":"TestWaves/equal"}
{"Action":"pass","Package":"slipway.io/slipway/release/plan","Test":"TestWaves/equal","Elapsed":0.1}
{"Action":"pass","Package":"slipway.io/slipway/release/plan","Test":"TestWaves","Elapsed":0.25}
{"Action":"output","Package":"slipway.io/slipway/release/plan","Output":"ok  \tslipway.io/slipway/release/plan\t0.300s\n"}
{"Action":"pass","Package":"slipway.io/slipway/release/plan","Elapsed":0.3}
`
	failing = `{"Action":"output","Package":"slipway.io/slipway/api","Test":"TestStop","Output":"    stop_test.go:9: want 409\n"}
{"Action":"fail","Package":"slipway.io/slipway/api","Test":"TestStop","Elapsed":1}
{"Action":"output","Package":"slipway.io/slipway/api","Output":"FAIL\tslipway.io/slipway/api\t1.1s\n"}
{"Action":"fail","Package":"slipway.io/slipway/api","Elapsed":1.1}
`
	skippingLong = `{"Action":"output","Package":"p","Test":"TestLongKills","Output":"    kills_test.go:7: belongs to ` + "`" + `make test-long` + "`" + `\n"}
{"Action":"output","Package":"p","Test":"TestLongKills","Output":"--- SKIP: TestLongKills (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestLongKills","Elapsed":0}
`
	interruptedLong = `{"Action":"output","Package":"p","Test":"TestLongKills","Output":"    kills_test.go:7: belongs to ` + "`" + `make test-long` + "`" + `\n"}
{"Action":"output","Package":"p","Test":"TestLongKills","Output":"W1130 03:16:12.345678   12 reflector.go:484] watch of *v1.Pod ended\n"}
{"Action":"output","Package":"p","Test":"TestLongKills","Output":"--- SKIP: TestLongKills (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestLongKills","Elapsed":0}
`
	skippingSoak = `{"Action":"output","Package":"p","Test":"TestSoakKills","Output":"    kills_test.go:7: belongs to ` + "`" + `make test-soak` + "`" + `\n"}
{"Action":"skip","Package":"p","Test":"TestSoakKills","Elapsed":0}
`
	misnamedLong = `{"Action":"output","Package":"p","Test":"TestKills","Output":"    kills_test.go:7: belongs to ` +
		"`" + `make test-long` + "`" + `\n"}
{"Action":"skip","Package":"p","Test":"TestKills","Elapsed":0}
`
	passingLong = `{"Action":"pass","Package":"p","Test":"TestLongKills","Elapsed":7}
{"Action":"output","Package":"p","Output":"ok  \tp\t7.100s\n"}
{"Action":"pass","Package":"p","Elapsed":7.1}
`
	covering = `{"Action":"output","Package":"p","Test":"TestKills","Output":"    kills_test.go:7: covered: 40 kills of a worker\n"}
{"Action":"output","Package":"p","Test":"TestKills","Output":"    kills_test.go:8: covered: 2 kills of a worker\n"}
{"Action":"pass","Package":"p","Test":"TestKills","Elapsed":3}
`
	skippingStack = `{"Action":"output","Package":"p","Test":"TestApply","Output":"    stack.go:7: needs the local stack: run it by ` + "`" + `make test` + "`" + `\n"}
{"Action":"skip","Package":"p","Test":"TestApply","Elapsed":0}
`
	skippingForReason = `{"Action":"output","Package":"p","Test":"TestBrowser","Output":"    browser_test.go:7: no chromium\n"}
{"Action":"skip","Package":"p","Test":"TestBrowser","Elapsed":0}
`
	buildFailing = `{"ImportPath":"p","Action":"build-output","Output":"p/x.go:3: undefined: y\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","Elapsed":0}
`
	panicking = `{"Action":"output","Package":"p","Test":"TestHang","Output":"panic: test timed out after 15m0s\n"}
{"Action":"fail","Package":"p","Elapsed":900}
`
	withoutTests = `{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q","Elapsed":0}
`
)

func TestReport(t *testing.T) {
	cases := []struct {
		reason string
		in     string
		policy policy
		ok     bool
		want   []string
	}{
		{"a run in which all tests pass is a success and lists each test with its cases", passing,
			policy{CI: true, Stack: true}, true, []string{
				"pass  release/plan TestWaves (0.25s, 1 cases)", "ok  \tslipway.io/slipway/release/plan\t0.300s",
				"ok    1 tests with 1 cases in 1 packages: 0 failed, 0 skipped"}},
		{"a failure shows its output and fails the run", passing + failing, policy{Stack: true}, false, []string{
			"FAIL  api TestStop (1.00s)\n    stop_test.go:9: want 409", "FAIL\tslipway.io/slipway/api\t1.1s",
			"1 failed"}},
		{"a skip is reported with its reason, and allowed outside CI", passing + skippingForReason, policy{Stack: true},
			true, []string{"skip  p TestBrowser: no chromium", "1 skipped"}},
		{"skips with the same reason share one line",
			passing + skippingForReason + strings.ReplaceAll(skippingForReason, "TestBrowser", "TestPage"),
			policy{Stack: true}, true,
			[]string{"skip  p TestBrowser, p TestPage: no chromium", "2 skipped"}},
		{"a skip is a failure in CI", passing + skippingForReason, policy{CI: true, Stack: true}, false,
			[]string{"in CI a skipped test is a failure"}},
		{"a long test may be skipped in the short run, in CI too", passing + skippingLong,
			policy{CI: true, Stack: true}, true, []string{"0 skipped, 1 left to make test-long"}},
		{"a long test that the long run skips is a failure in CI", passing + skippingLong, policy{CI: true, Long: true},
			false, []string{"skip  p TestLongKills: belongs to `make test-long`"}},
		{"a line that a library printed after the reason is no reason", passing + interruptedLong,
			policy{CI: true, Stack: true}, true, []string{"0 skipped, 1 left to make test-long"}},
		{"a test of the soak may be skipped in the long run", passing + skippingSoak, policy{CI: true, Long: true},
			true, []string{"0 skipped, 1 left to make test-soak"}},
		{"a test of the soak that the soak skips is a failure in CI", passing + skippingSoak,
			policy{CI: true, Soak: true}, false, []string{"skip  p TestSoakKills"}},
		{"a skip for the long run fails if the long run cannot find the test by its name", passing + misnamedLong,
			policy{CI: true, Stack: true}, false, []string{"skip  p TestKills: belongs to `make test-long`"}},
		{"a test whose name belongs to the long run must not run in the short one", passingLong, policy{Stack: true},
			false, []string{`FAIL  p TestLongKills: its name belongs to "make test-long"`}},
		{"a test whose name belongs to the long run may run there", passingLong, policy{CI: true, Long: true}, true,
			nil},
		{"without the stack a test that needs it is left to the run with the stack", passing + skippingStack,
			policy{CI: true}, true, []string{"0 skipped, 1 left to make test"}},
		{"with the stack no test may skip for lack of it", passing + skippingStack, policy{CI: true, Stack: true},
			false, []string{"skip  p TestApply"}},
		{"covered counts are added up", covering, policy{Stack: true}, true, []string{"covered  42 kills of a worker"}},
		{"for a test with cases, only the cases are timed", passing + covering, policy{Stack: true}, true,
			[]string{"slowest  1     3.0s  p TestKills\nslowest  2     0.1s  release/plan TestWaves/equal\n"}},
		{"a package that does not compile fails the run, with the compiler's output", passing + buildFailing,
			policy{Stack: true}, false, []string{"undefined: y", "FAIL\tp [build failed]"}},
		{"a test that did not finish is listed with its output", passing + panicking, policy{Stack: true}, false,
			[]string{"TestHang did not finish", "test timed out"}},
		{"packages without tests are left out", passing + withoutTests, policy{CI: true, Stack: true}, true,
			[]string{"in 1 packages"}},
		{"a run without tests fails", withoutTests, policy{Stack: true}, false, []string{"no test was run"}},
		{"a line that is not an event is passed on", "go: downloading x\n" + passing, policy{Stack: true}, true,
			[]string{"go: downloading x"}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out, c.policy)
			for l := range strings.Lines(c.in) {
				r.line([]byte(strings.TrimSuffix(l, "\n")))
			}
			require.Equal(t, c.ok, r.finish(time.Now()), "%s:\n%s", c.reason, out.String())
			for _, want := range c.want {
				require.Contains(t, out.String(), want, c.reason)
			}
		})
	}
}

func TestRerunLines(t *testing.T) {
	var four strings.Builder
	for i := range 4 {
		four.WriteString(strings.ReplaceAll(failing, "TestStop", fmt.Sprintf("TestStop%d", i)))
	}
	failed := func(name string) string {
		return fmt.Sprintf(`{"Action":"fail","Package":"slipway.io/slipway/api","Test":%q}`+"\n", name)
	}
	cases := []struct {
		reason string
		in     string
		policy policy
		want   []string
	}{
		{"one failed test among others may be caused by load", passing + failing, policy{CI: true, Stack: true},
			[]string{"slipway.io/slipway/api ^TestStop$\n"}},
		{"for a test with cases, only the failed cases run again",
			failed("TestStop/twice") + failed("TestStop/a.b") + failing, policy{Stack: true},
			[]string{`slipway.io/slipway/api ^TestStop$/^(twice|a\.b)$` + "\n"}},
		{"a nested case runs again with its whole parent case",
			failed("TestStop/twice/deep") + failed("TestStop/twice") + failing, policy{Stack: true},
			[]string{"slipway.io/slipway/api ^TestStop$/^(twice)$\n"}},
		{"nothing runs again if all tests passed", passing, policy{Stack: true}, nil},
		{"many failures are a defect", four.String(), policy{Stack: true}, nil},
		{"a build failure is not retried", failing + buildFailing, policy{Stack: true}, nil},
		{"a test that hangs is not retried", failing + panicking, policy{Stack: true}, nil},
		{"a skip in CI stays a failure", failing + skippingForReason, policy{CI: true, Stack: true}, nil},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			r := newReport(io.Discard, c.policy)
			for l := range strings.Lines(c.in) {
				r.line([]byte(strings.TrimSuffix(l, "\n")))
			}
			require.False(t, r.finish(time.Now()) && c.want != nil)
			require.Equal(t, c.want, r.rerunLines())
		})
	}
}
