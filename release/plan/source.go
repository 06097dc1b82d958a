package plan

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// checkSource checks what the item's deployment deploys from. Keys of other deployments are legal, and warned of.
func (r *itemRules) checkSource() {
	for _, source := range []struct {
		key, value string
		of         Operation
		what       string
		legal      func(string) error
	}{
		{keyHTTPSrcURI, r.item.HTTPSrcURI, HTTPUploadDeploy, "the address of the code package", validPackageURI},
		{keyCompileRepoPath, r.item.CompileRepoPath, CompileDeploy, "the address of the Git repository", validRepository},
		{keyCompileRepoBranch, r.item.CompileRepoBranch, CompileDeploy, "the branch that is compiled", validBranch},
	} {
		key, value := source.key, source.value
		if r.item.Deployment != source.of {
			if value != "" {
				r.warn(key, fmt.Sprintf("is not used: the deployment is %s, and only %s has %s", r.item.Deployment, source.of, source.what))
			}
			continue
		}
		if r.present(key, value, fmt.Sprintf("%s needs %s", source.of, source.what)) {
			r.hold(key, source.legal(value))
		}
	}
}

func validPackageURI(text string) error { return catalog.ValidURL(text, "http", "https") }

// shortRepository is "git@host:group/app.git". The path must not begin with ":", which Git takes for the name of a helper program.
var shortRepository = regexp.MustCompile(`^([A-Za-z0-9_][-A-Za-z0-9_.]*@)?[A-Za-z0-9][-A-Za-z0-9.]*:[^:]`)

// validRepository says what is wrong with the address of a Git repository.
func validRepository(text string) error {
	switch {
	case strings.Contains(text, "://"):
		return catalog.ValidURL(text, "http", "https", "ssh", "git")
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\\' }):
		return fmt.Errorf("%s is not the address of a Git repository: it has a blank, a control character or a backslash in it",
			strictyaml.Quote(text))
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
	if len(name) > maxBranchLength {
		return fmt.Errorf("is too long for the name of a branch: at most %d characters", maxBranchLength)
	}
	illegal := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }
	parts := "/" + name + "/"
	for _, rule := range []struct {
		broken bool
		why    string
	}{
		{strings.HasPrefix(name, "refs/"), "leave out refs/heads/"},
		{strings.HasPrefix(name, "-"), `it begins with "-"`},
		{name == "@" || name == "HEAD", "it is a word of Git's own"},
		{strings.HasSuffix(name, "."), `it ends with "."`},
		{strings.ContainsFunc(name, illegal), `it has a blank, a control character or one of ~ ^ : ? * [ \ in it`},
		{strings.Contains(name, "..") || strings.Contains(name, "@{"), `it has ".." or "@{" in it`},
		{strings.Contains(parts, "//"), `it has a "/" at its begin, at its end or beside another`},
		{strings.Contains(parts, "/."), `a part of it begins with "."`},
		{strings.Contains(parts, ".lock/"), `a part of it ends with ".lock"`},
	} {
		if rule.broken {
			return fmt.Errorf("%s is not the name of a branch: %s", strictyaml.Quote(name), rule.why)
		}
	}
	return nil
}
