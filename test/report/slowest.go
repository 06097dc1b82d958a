package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// timedTest is a test or a case that has no cases of its own, with its seconds. The time of a test with parallel cases does not contain theirs, so that the cases
// are what to look at.
type timedTest struct {
	name    string
	seconds float64
}

// printSlowest ends a run with what to look at when it takes too long.
func (r *report) printSlowest() {
	slices.SortStableFunc(r.timed, func(a, b timedTest) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, test := range r.timed[:min(slowest, len(r.timed))] {
		fmt.Fprintf(r.out, "slowest %2d  %6.1fs  %s\n", i+1, test.seconds, test.name)
	}
}

// covers is what harness.Covered logs.
var covers = regexp.MustCompile(`covered: (\d+) (.+)\n`)

// countCovered adds up what a test says that it has covered, beside its cases.
func (r *report) countCovered(lines []string) {
	for _, line := range lines {
		found := covers.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		n, err := strconv.Atoi(found[1])
		if err == nil {
			r.covered[found[2]] += n
		}
	}
}
