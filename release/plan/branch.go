package plan

import (
	"errors"
	"fmt"
	"strings"

	"slipway.io/slipway/release/strictyaml"
)

// maxBranchLength is how many bytes the name of a branch has at most: it is the name of a file.
const maxBranchLength = 250

// validBranch says what is wrong with the name of a Git branch, by the rules of git-check-ref-format(1) and those of git-branch(1).
func validBranch(name string) error {
	refuse := func(why string) error {
		return fmt.Errorf("%s is not the name of a branch: %s", strictyaml.Quote(name), why)
	}
	switch {
	case len(name) > maxBranchLength:
		return fmt.Errorf("is too long for the name of a branch: at most %d characters", maxBranchLength)
	case strings.HasPrefix(name, "refs/"):
		return refuse("leave out refs/heads/")
	case strings.HasPrefix(name, "-"):
		return refuse("it begins with \"-\"")
	case name == "@" || name == "HEAD":
		return refuse("it is a word of Git's own")
	case strings.HasSuffix(name, "."):
		return refuse("it ends with \".\"")
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }):
		return refuse("it has a blank, a control character or one of ~ ^ : ? * [ \\ in it")
	case strings.Contains(name, "..") || strings.Contains(name, "@{"):
		return refuse("it has \"..\" or \"@{\" in it")
	}
	for part := range strings.SplitSeq(name, "/") {
		if err := validBranchPart(part); err != nil {
			return refuse(err.Error())
		}
	}
	return nil
}

func validBranchPart(part string) error {
	switch {
	case part == "":
		return errors.New("it has a \"/\" at its begin, at its end or beside another")
	case strings.HasPrefix(part, "."):
		return errors.New("a part of it begins with \".\"")
	case strings.HasSuffix(part, ".lock"):
		return errors.New("a part of it ends with \".lock\"")
	}
	return nil
}
