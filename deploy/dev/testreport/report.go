package main

import (
	"encoding/json"
	"fmt"
	"io"
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

// longRun in a test's reason to skip says that it belongs there.
const longRun = "make test-long"

// policy says which skips are failures.
type policy struct{ CI, Long bool }

type testID struct{ pkg, name string }

// report gathers the events of one `go test`.
type report struct {
	out     io.Writer
	policy  policy
	started time.Time

	output   map[testID][]string // of the tests and packages that have not ended
	subtests map[testID]int      // ended subtests of a test
	build    map[string][]string // compiler output of a package

	packages       []string // result lines, as go test prints them
	skipped        []string // "package test: reason"
	postponed      int      // skipped, and left to the long run
	failed         []string
	red            []testID // the tests that failed
	redCases       []testID // and their cases
	unfinished     int
	tests, cases   int
	packagesFailed int
}

func newReport(out io.Writer, p policy) *report {
	return &report{
		out: out, policy: p, started: time.Now(),
		output: map[testID][]string{}, subtests: map[testID]int{}, build: map[string][]string{},
	}
}

// line takes one line of input. What is no event is passed on as it is.
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
	} else {
		r.tests++
	}
	name := shortPackage(e.Package) + " " + e.Test
	switch e.Action {
	case "skip":
		r.testSkipped(name, reasonOf(lines))
	case "fail":
		r.failed = append(r.failed, name)
		if isCase {
			r.redCases = append(r.redCases, id)
		} else {
			r.red = append(r.red, id)
		}
		fmt.Fprintf(r.out, "FAIL  %s (%.2fs)\n%s", name, e.Elapsed, strings.Join(lines, ""))
	case "pass":
		if isCase {
			return
		}
		cases := ""
		if n := r.subtests[id]; n > 0 {
			cases = fmt.Sprintf(", %d cases", n)
		}
		fmt.Fprintf(r.out, "pass  %s (%.2fs%s)\n", name, e.Elapsed, cases)
	}
}

func (r *report) testSkipped(name, reason string) {
	if strings.Contains(reason, longRun) && !r.policy.Long {
		r.postponed++
		return
	}
	r.skipped = append(r.skipped, name+": "+reason)
}

// packageEnded keeps the line that go test itself would have printed.
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

// printUnfinished shows what a package and its tests wrote that never got to their end: a panic, a timeout, an exit.
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

// finish prints the summary and says whether the run is a success.
func (r *report) finish(now time.Time) bool {
	ok := r.packagesFailed == 0 && len(r.failed) == 0 && r.tests > 0
	fmt.Fprintln(r.out)
	for _, s := range r.skipped {
		fmt.Fprintln(r.out, "skip  "+s)
	}
	for _, f := range r.failed {
		fmt.Fprintln(r.out, "FAIL  "+f)
	}
	for _, p := range r.packages {
		fmt.Fprintln(r.out, p)
	}
	if r.policy.CI && len(r.skipped) > 0 {
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
	if r.postponed > 0 {
		left = fmt.Sprintf(", %d left to make test-long", r.postponed)
	}
	fmt.Fprintf(r.out, "%s    %d tests with %d cases in %d packages: %d failed, %d skipped%s, %s\n",
		verdict, r.tests, r.cases, len(r.packages), len(r.failed), len(r.skipped), left, now.Sub(r.started).Round(time.Second))
	return ok
}

// fewRed is how many tests may be red for a second run to have a say: with more it is not the load of the machine that failed them.
const fewRed = 8

// again are the tests that deserve a second run, one per line as "package pattern" with a pattern for go test's -run: only the cases that failed, where
// it is cases that did. There are none when all is well, when much went wrong, or when something went wrong that a second run of a test cannot tell of:
// a package that does not compile or did not end, a skip in CI.
func (r *report) again() []string {
	packages := map[string]bool{}
	for _, id := range r.red {
		packages[id.pkg] = true
	}
	if len(r.red) > fewRed || len(packages) != r.packagesFailed || r.unfinished > 0 || r.policy.CI && len(r.skipped) > 0 {
		return nil
	}
	var lines []string
	for _, id := range r.red {
		lines = append(lines, id.pkg+" "+r.pattern(id)+"\n")
	}
	return lines
}

// pattern matches a test that failed, or its cases that did. A case of a case is run with the whole case.
func (r *report) pattern(id testID) string {
	var cases []string
	for _, red := range r.redCases {
		top, name, _ := strings.Cut(red.name, "/")
		name, _, nested := strings.Cut(name, "/")
		if red.pkg == id.pkg && top == id.name && !nested {
			cases = append(cases, regexp.QuoteMeta(name))
		}
	}
	if len(cases) == 0 {
		return "^" + id.name + "$"
	}
	return "^" + id.name + "$/^(" + strings.Join(cases, "|") + ")$"
}

// reasonOf is the message of t.Skip, which go test writes as "    file.go:12: message".
func reasonOf(lines []string) string {
	for _, l := range slices.Backward(lines) {
		text := strings.TrimSpace(l)
		if strings.HasPrefix(text, "---") || strings.HasPrefix(text, "===") || text == "" {
			continue
		}
		if _, message, ok := strings.Cut(text, ".go:"); ok {
			if _, message, ok = strings.Cut(message, ": "); ok {
				return message
			}
		}
		return text
	}
	return "no reason given"
}

// shortPackage leaves out the module's own path.
func shortPackage(pkg string) string { return strings.TrimPrefix(pkg, "slipway.io/slipway/") }
