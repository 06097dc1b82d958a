package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json` (see `go doc test2json`).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// policy decides which skips are failures.
type policy struct{ CI, Stack, Long, Soak bool }

// run is another run that executes skipped tests: their skip reason names its command. If it has a prefix, it finds its
// tests by that prefix of their names.
type run struct {
	command, prefix string
}

var (
	stackRun = run{"make test", ""} // for tests without the stack
	longRun  = run{"make test-long", "TestLong"}
	soakRun  = run{"make test-soak", "TestSoak"}
)

// slowest is the number of slowest tests in the report.
const slowest = 10

type testID struct{ pkg, name string }

// report collects the events of one `go test`.
type report struct {
	out     io.Writer
	policy  policy
	started time.Time

	output   map[testID][]string // of tests and packages that have not ended
	subtests map[testID]int      // ended subtests of a test
	build    map[string][]string // compiler output of a package

	packages       []string            // result lines, as go test prints them
	skipped        map[string][]string // "package test", by the reason
	skips          int
	postponed      map[run]int
	misnamed       []string // tests whose name belongs to another run than the one they ran in
	timed          []timedTest
	covered        map[string]int // what the tests logged as covered
	failed         []string
	failedTests    []testID // the tests that failed
	failedSubtests []testID // and failed subtests
	unfinished     int
	tests, cases   int
	packagesFailed int
}

func newReport(out io.Writer, p policy) *report {
	return &report{
		out: out, policy: p, started: time.Now(),
		output: map[testID][]string{}, subtests: map[testID]int{}, build: map[string][]string{},
		postponed: map[run]int{}, covered: map[string]int{}, skipped: map[string][]string{},
	}
}

// line processes one line of input. A line that is not an event is passed on unchanged.
func (r *report) line(text []byte) {
	var e event
	if err := json.Unmarshal(text, &e); err != nil {
		fmt.Fprintf(r.out, "%s\n", text)
		return
	}
	switch {
	case e.Action == "build-output":
		r.build[e.ImportPath] = append(r.build[e.ImportPath], e.Output)
	case e.Action == "build-fail":
		fmt.Fprintf(r.out, "FAIL  build of %s\n%s", e.ImportPath, strings.Join(r.build[e.ImportPath], ""))
	case e.Action == "output":
		id := testID{e.Package, e.Test}
		r.output[id] = append(r.output[id], e.Output)
	case e.Test == "":
		r.packageEnded(e)
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		r.testEnded(e)
	}
}

func (r *report) testEnded(e event) {
	id := testID{e.Package, e.Test}
	lines := r.output[id]
	delete(r.output, id)
	top, _, isCase := strings.Cut(e.Test, "/")
	if isCase {
		r.cases++
		r.subtests[testID{e.Package, top}]++
		parent := e.Test[:strings.LastIndex(e.Test, "/")]
		if parent != top {
			r.subtests[testID{e.Package, parent}]++
		}
	} else {
		r.tests++
	}
	name := shortPackage(e.Package) + " " + e.Test
	if r.subtests[id] == 0 {
		r.timed = append(r.timed, timedTest{name, e.Elapsed})
	}
	r.countCovered(lines)
	switch e.Action {
	case "skip":
		r.testSkipped(id, reasonOf(lines))
	case "fail":
		r.failed = append(r.failed, name)
		if isCase {
			r.failedSubtests = append(r.failedSubtests, id)
		} else {
			r.failedTests = append(r.failedTests, id)
		}
		fmt.Fprintf(r.out, "FAIL  %s (%.2fs)\n%s", name, e.Elapsed, strings.Join(lines, ""))
	case "pass":
		if isCase {
			return
		}
		r.checkName(id)
		cases := ""
		if n := r.subtests[id]; n > 0 {
			cases = fmt.Sprintf(", %d cases", n)
		}
		fmt.Fprintf(r.out, "pass  %s (%.2fs%s)\n", name, e.Elapsed, cases)
	}
}

// testSkipped accepts a skip that leaves the test to a longer run, if that run finds the test by its name.
func (r *report) testSkipped(id testID, reason string) {
	for _, left := range r.longerRuns() {
		if strings.Contains(reason, "`"+left.command+"`") && strings.HasPrefix(id.name, left.prefix) {
			r.postponed[left]++
			return
		}
	}
	r.skips++
	r.skipped[reason] = append(r.skipped[reason], shortPackage(id.pkg)+" "+id.name)
}

func (r *report) longerRuns() []run {
	switch {
	case r.policy.Soak:
		return nil
	case r.policy.Long:
		return []run{soakRun}
	case r.policy.Stack:
		return []run{longRun, soakRun}
	}
	return []run{stackRun, longRun, soakRun}
}

// checkName reports a test that runs here although its name belongs to a longer run: it would run in both.
func (r *report) checkName(id testID) {
	for _, left := range r.longerRuns() {
		if left.prefix != "" && strings.HasPrefix(id.name, left.prefix) {
			r.misnamed = append(r.misnamed, fmt.Sprintf("%s %s: its name belongs to %q, but it ran here",
				shortPackage(id.pkg), id.name, left.command))
		}
	}
}

// packageEnded keeps the result line that go test itself would have printed.
func (r *report) packageEnded(e event) {
	id := testID{e.Package, ""}
	if e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
		return
	}
	lines := r.output[id]
	delete(r.output, id)
	result := ""
	for _, l := range lines {
		if strings.HasPrefix(l, "ok ") || strings.HasPrefix(l, "FAIL\t") || strings.HasPrefix(l, "?") {
			result = strings.TrimRight(l, "\n")
		}
	}
	if e.Action == "fail" {
		r.packagesFailed++
		r.printUnfinished(e.Package, lines)
		if result == "" {
			result = fmt.Sprintf("FAIL\t%s\t%.3fs", e.Package, e.Elapsed)
		}
	}
	if result != "" && !strings.Contains(result, "[no test files]") {
		r.packages = append(r.packages, result)
	}
}

// printUnfinished prints the output of a package and of its tests that did not finish: a panic, a timeout, an exit.
func (r *report) printUnfinished(pkg string, lines []string) {
	var names []string
	for id := range r.output {
		if id.pkg == pkg {
			names = append(names, id.name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		id := testID{pkg, name}
		r.unfinished++
		r.failed = append(r.failed, shortPackage(pkg)+" "+name+" (did not finish)")
		fmt.Fprintf(r.out, "FAIL  %s %s did not finish\n%s", shortPackage(pkg), name, strings.Join(r.output[id], ""))
		delete(r.output, id)
	}
	fmt.Fprint(r.out, strings.Join(lines, ""))
}

// finish prints the summary and reports whether the run is a success.
func (r *report) finish(now time.Time) bool {
	ok := r.packagesFailed == 0 && len(r.failed) == 0 && len(r.misnamed) == 0 && r.tests > 0
	fmt.Fprintln(r.out)
	r.printSlowest()
	for _, what := range slices.Sorted(maps.Keys(r.covered)) {
		fmt.Fprintf(r.out, "covered  %d %s\n", r.covered[what], what)
	}
	for _, p := range r.packages {
		fmt.Fprintln(r.out, p)
	}
	// What went wrong comes last: a log that is cut keeps its end.
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(r.out, "skip  %s: %s\n", strings.Join(r.skipped[reason], ", "), reason)
	}
	for _, f := range r.failed {
		fmt.Fprintln(r.out, "FAIL  "+f)
	}
	for _, m := range r.misnamed {
		fmt.Fprintln(r.out, "FAIL  "+m)
	}
	if r.policy.CI && r.skips > 0 {
		fmt.Fprintln(r.out, "FAIL  in CI a skipped test is a failure")
		ok = false
	}
	if r.tests == 0 {
		fmt.Fprintln(r.out, "FAIL  no test was run")
	}
	verdict := "ok"
	if !ok {
		verdict = "FAIL"
	}
	left := ""
	for _, longer := range []run{stackRun, longRun, soakRun} {
		if n := r.postponed[longer]; n > 0 {
			left += fmt.Sprintf(", %d left to %s", n, longer.command)
		}
	}
	fmt.Fprintf(r.out, "%s    %d tests with %d cases in %d packages: %d failed, %d skipped%s, %s\n",
		verdict, r.tests, r.cases, len(r.packages), len(r.failed), r.skips, left, now.Sub(r.started).Round(time.Second))
	return ok
}

// logged is what a test logged, as go test prints it. Text without a line end can precede it.
var logged = regexp.MustCompile(`\s\S+\.go:\d+: (.*)`)

// reasonOf returns the message of t.Skip, which is the last line that the test logged. Lines of other forms are from
// goroutines of other tests, or libraries, which print while this test runs.
func reasonOf(lines []string) string {
	for _, l := range slices.Backward(lines) {
		if found := logged.FindStringSubmatch(strings.TrimRight(l, "\n")); found != nil {
			return found[1]
		}
	}
	return "no reason given"
}

// shortPackage removes the module's own path.
func shortPackage(pkg string) string { return strings.TrimPrefix(pkg, "slipway.io/slipway/") }
