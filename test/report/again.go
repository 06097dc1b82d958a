package main

import (
	"regexp"
	"strings"
)

// fewRed is how many tests may be red for a second run to have a say: with more it is not the load of the machine that failed them.
const fewRed = 3

// again are the tests that deserve a second run, one per line as "package pattern" with a pattern for go test's -run: only the cases that failed, where
// it is cases that did. There are none when all is well, when much went wrong, or when something went wrong that a second run of a test cannot tell of:
// a package that does not compile or did not end, a skip in CI.
func (r *report) again() []string {
	packages := map[string]bool{}
	for _, id := range r.red {
		packages[id.pkg] = true
	}
	if len(r.red) > fewRed || len(packages) != r.packagesFailed || r.unfinished > 0 || r.policy.CI && r.skips > 0 {
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
