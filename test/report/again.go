package main

import (
	"regexp"
	"strings"
)

// maxRerunTests is the maximum number of failed tests for a second run: more failures are not caused by the load of the
// machine.
const maxRerunTests = 3

// rerunLines returns the tests for a second run, one per line as "package pattern" with a pattern for go test's -run.
// If subtests failed, the pattern covers only those. There are none if all is well, if many tests failed, or after a
// failure that a second run cannot clear: a package that does not compile or did not finish, a skip in CI.
func (r *report) rerunLines() []string {
	packages := map[string]bool{}
	for _, id := range r.failedTests {
		packages[id.pkg] = true
	}
	if len(r.failedTests) > maxRerunTests || len(packages) != r.packagesFailed || r.unfinished > 0 || r.policy.CI &&
		r.skips > 0 {
		return nil
	}
	var lines []string
	for _, id := range r.failedTests {
		lines = append(lines, id.pkg+" "+r.pattern(id)+"\n")
	}
	return lines
}

// pattern matches a failed test, or its failed subtests. A nested subtest is run with its whole parent.
func (r *report) pattern(id testID) string {
	var cases []string
	for _, red := range r.failedSubtests {
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
