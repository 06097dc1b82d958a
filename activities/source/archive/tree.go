package archive

import (
	"context"
	"io/fs"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// The bounds of names. Those of a part and a path are what Linux takes; that of a link's target is what XFS takes.
const (
	maxPart   = 255
	maxPath   = 4096
	maxDepth  = 100
	maxTarget = 1023
	// maxNames bounds the memory that all names and targets of an archive take together.
	maxNames = 64 << 20
	// maxHops is how many links one path may pass, as in Linux.
	maxHops = 40
	// maxSteps bounds the work of following all links of an archive.
	maxSteps = 10_000_000
)

// defaultMode is the mode of folders that only the names of others imply.
const defaultMode fs.FileMode = 0o755

// split checks a name and returns its parts; none: the folder itself.
func split(name string) ([]string, error) {
	switch {
	case name == "":
		return nil, refusedEntry(name, "has no name")
	case len(name) > maxPath:
		return nil, refusedEntry(name, "has a name of %d bytes; at most %d are possible", len(name), maxPath)
	case strings.HasPrefix(name, "/"):
		return nil, refusedEntry(name, "leaves the folder: its name is an absolute path")
	}
	if problem := badText(name); problem != "" {
		return nil, refusedEntry(name, "has a name that %s", problem)
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return nil, refusedEntry(name, `leaves the folder: its name has ".."`)
		case len(part) > maxPart:
			return nil, refusedEntry(name, "has a part of %d bytes in its name; at most %d are possible", len(part), maxPart)
		}
		parts = append(parts, part)
	}
	if len(parts) > maxDepth {
		return nil, refusedEntry(name, "lies %d folders deep; at most %d are possible", len(parts), maxDepth)
	}
	return parts, nil
}

// badText says what is wrong with the letters of a name or of a link's target; empty: nothing.
func badText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "isn't UTF-8"
	case strings.Contains(text, `\`):
		return "has a backslash"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "has a control character"
	case len(text) >= 2 && text[1] == ':' && unicode.IsLetter(rune(text[0])) && text[0] < utf8.RuneSelf:
		return "begins with a drive letter"
	}
	return ""
}

// checkTarget checks what a symbolic link's target says by itself. Where it leads is known when the whole archive is.
func checkTarget(e entry) error {
	switch {
	case e.target == "":
		return refusedEntry(e.name, "is a symbolic link to nothing")
	case len(e.target) > maxTarget:
		return refusedEntry(e.name, "is a symbolic link with a target of more than %d bytes", maxTarget)
	case strings.HasPrefix(e.target, "/"):
		return refusedEntry(e.name, "is a symbolic link that leaves the folder: its target %s is an absolute path", shown(e.target))
	}
	if problem := badText(e.target); problem != "" {
		return refusedEntry(e.name, "is a symbolic link with the target %s, which %s", shown(e.target), problem)
	}
	return nil
}

// tree is what the archive had so far: names and kinds, without content.
type tree struct {
	root *node
	// links are the symbolic links, in the archive's order; folders have every folder after the one that it lies in.
	links, folders []*node
	// size counts the nodes but the root.
	size int
	// names counts the bytes of the names and targets.
	names int
	steps int
	fold  cases.Caser
}

// node is one name. The names in a folder are told apart as file systems do that tell the fewest apart: without case and Unicode forms.
type node struct {
	name     string
	above    *node
	kind     kind
	in       map[string]*node
	target   string
	mode     fs.FileMode
	modified time.Time
}

func newTree() *tree { return &tree{root: &node{kind: folder}, fold: cases.Fold()} }

func (n *node) path() string {
	var parts []string
	for ; n.above != nil; n = n.above {
		parts = append(parts, n.name)
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, "/")
}

// place adds an entry, with the folders that its name implies; made: there is a new folder.
func (t *tree) place(parts []string, e entry) (at *node, made bool, err error) {
	if len(parts) == 0 {
		if e.kind != folder {
			return nil, false, refusedEntry(e.name, "is a %s with the name of the folder itself", e.kind)
		}
		// Its mode is not the archive's to say: the folder belongs to whoever unpacks.
		return t.root, false, nil
	}
	at = t.root
	for i, part := range parts {
		last := i == len(parts)-1
		key := t.key(part)
		next := at.in[key]
		switch {
		case next == nil:
			implied := entry{name: e.name, kind: folder, mode: defaultMode}
			if last {
				implied = e
			}
			if next, err = t.grow(at, part, key, implied); err != nil {
				return nil, false, err
			}
			made = made || next.kind == folder
		case next.name != part:
			return nil, false, refusedEntry(e.name, "differs from %s only by case or by the form of its letters%s", shown(next.path()), t.jarHint())
		case !last && next.kind != folder:
			return nil, false, refusedEntry(e.name, "lies below %s, which is a %s", shown(next.path()), next.kind)
		case last && (next.kind != folder || e.kind != folder):
			return nil, false, refusedEntry(e.name, "is in the archive twice, as a %s and as a %s", next.kind, e.kind)
		case last:
			next.mode, next.modified = e.mode, e.modified
		}
		at = next
	}
	return at, made, nil
}

// jarHint tells what else can be done with a jar, whose classes may well differ by case: it was never meant to be unpacked.
func (t *tree) jarHint() string {
	if t.root.in["meta-inf"] == nil {
		return ""
	}
	return "; if this is a jar or war, set unpack: false to keep it whole"
}

func (t *tree) grow(above *node, name, key string, e entry) (*node, error) {
	n := &node{name: name, above: above, kind: e.kind, target: e.target, mode: e.mode, modified: e.modified}
	t.size++
	t.names += len(name) + len(key) + len(e.target)
	if t.names > maxNames {
		return nil, refused("has names and links that take more than %d MiB together", maxNames>>20)
	}
	if above.in == nil {
		above.in = map[string]*node{}
	}
	above.in[key] = n
	switch e.kind {
	case folder:
		t.folders = append(t.folders, n)
	case symlink:
		t.links = append(t.links, n)
	}
	return n, nil
}

// key is what names have in common that some file systems take for the same.
func (t *tree) key(part string) string {
	for i := range len(part) {
		if part[i] >= utf8.RuneSelf {
			return norm.NFD.String(t.fold.String(norm.NFD.String(part)))
		}
	}
	return strings.ToLower(part)
}

// linked is the path of the file that a hard link names. The link, which is in the tree by then, becomes a file like any other.
func (t *tree) linked(link *node, e entry) (string, error) {
	parts, err := split(e.target)
	if err != nil {
		return "", refusedEntry(e.name, "is a hard link to %s, which no entry can be", shown(e.target))
	}
	at := t.root
	for _, part := range parts {
		if at = at.in[t.key(part)]; at == nil || at.name != part {
			return "", refusedEntry(e.name, "is a hard link to %s, which isn't in the archive before it", shown(e.target))
		}
	}
	if at.kind != file {
		return "", refusedEntry(e.name, "is a hard link to %s, which is a %s, not a file", shown(e.target), at.kind)
	}
	link.kind = file
	return at.path(), nil
}

// checkLinks follows every symbolic link, through others, and refuses those that leave the folder.
func (t *tree) checkLinks(ctx context.Context) error {
	for _, link := range t.links {
		if err := ctx.Err(); err != nil {
			return err
		}
		if problem := t.follow(link); problem != "" {
			return refusedEntry(link.path(), "is a symbolic link to %s, which %s", shown(link.target), problem)
		}
	}
	return nil
}

// spot is a place that may not exist: a node, and how many parts below it.
type spot struct {
	at      *node
	missing int
}

func (s spot) up() (spot, bool) {
	if s.missing > 0 {
		return spot{s.at, s.missing - 1}, true
	}
	return spot{at: s.at.above}, s.at.above != nil
}

// follow walks a link's target as the kernel would, and says what is wrong with it. What isn't there is taken for a folder: it may come.
func (t *tree) follow(link *node) string {
	here := spot{at: link.above}
	rest := strings.Split(link.target, "/")
	for hops := 1; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if t.steps++; t.steps > maxSteps {
			return "takes too long to follow, as others that lead through each other do"
		}
		switch part {
		case "", ".":
			continue
		case "..":
			above, inside := here.up()
			if !inside {
				return "leaves the folder"
			}
			here = above
			continue
		}
		if here.missing > 0 {
			here.missing++
			continue
		}
		next := here.at.in[t.key(part)]
		switch {
		case next == nil || next.name != part:
			here.missing++
		case next.kind == symlink:
			if hops++; hops > maxHops {
				return "leads through too many links, or in a circle"
			}
			target := strings.Split(next.target, "/")
			t.steps += len(target) + len(rest)
			rest = append(target, rest...)
		default:
			here.at = next
		}
	}
	return ""
}
