package plan

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// checkSource holds what the item's deployment deploys from against the rules. Keys of another deployment are legal (the source document's own
// example has them): warned of, not used.
func (r *itemRules) checkSource() {
	values := map[string]string{
		keyHTTPSrcURI: r.item.HTTPSrcURI, keyCompileRepoPath: r.item.CompileRepoPath, keyCompileRepoBranch: r.item.CompileRepoBranch,
	}
	for _, source := range []struct {
		key   string
		of    Operation
		what  string
		legal func(string) error
	}{
		{keyHTTPSrcURI, HTTPUploadDeploy, "the address of the code package", validPackageURI},
		{keyCompileRepoPath, CompileDeploy, "the address of the Git repository", validRepository},
		{keyCompileRepoBranch, CompileDeploy, "the branch that is compiled", validBranch},
	} {
		value := values[source.key]
		if r.item.Deployment != source.of {
			if value != "" {
				r.warn(source.key, fmt.Sprintf("is not used: the deployment is %s, and only %s has %s", r.item.Deployment, source.of, source.what))
			}
			continue
		}
		if r.present(source.key, value, fmt.Sprintf("%s needs %s", source.of, source.what)) {
			if err := source.legal(value); err != nil {
				r.refuse(source.key, "%s", err)
			}
		}
	}
}

func validPackageURI(text string) error { return catalog.ValidURL(text, "http", "https") }

// shortRepository is Git's short form of an SSH address: "git@host:group/app.git". The path must not begin with ":", which Git takes for the
// name of a helper program.
var shortRepository = regexp.MustCompile(`^([A-Za-z0-9_][-A-Za-z0-9_.]*@)?[A-Za-z0-9][-A-Za-z0-9.]*:[^:]`)

// validRepository says what is wrong with the address of a Git repository.
func validRepository(text string) error {
	switch {
	case strings.Contains(text, "://"):
		return catalog.ValidURL(text, "http", "https", "ssh", "git")
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\\' }):
		return fmt.Errorf("%s is not the address of a Git repository: it has a blank, a control character or a backslash in it", strictyaml.Quote(text))
	case !shortRepository.MatchString(text):
		return fmt.Errorf("%s is not the address of a Git repository: write http://, https://, ssh:// or git:// and the rest, or user@host:path",
			strictyaml.Quote(text))
	}
	return nil
}

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
