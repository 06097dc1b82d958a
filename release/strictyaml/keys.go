package strictyaml

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

func repeatedKey(first, again int) string {
	if first == again {
		return "appears twice: keep one"
	}
	return fmt.Sprintf("appears twice (lines %d and %d): keep one", first, again)
}

func unknownKey(key string, known []string) string {
	near := Nearest(key, known)
	switch {
	case near == "":
		return fmt.Sprintf("unknown key %s: the keys here are %s", Quote(key), strings.Join(known, ", "))
	case strings.EqualFold(near, key):
		return fmt.Sprintf("unknown key %s: did you mean %q? Keys are case-sensitive", Quote(key), near)
	}
	return fmt.Sprintf("unknown key %s: did you mean %q?", Quote(key), near)
}

// List joins words for messages: "a, b, c".
func List[T ~string](words []T) string {
	var list strings.Builder
	for i, word := range words {
		if i > 0 {
			list.WriteString(", ")
		}
		list.WriteString(string(word))
	}
	return list.String()
}

// DidYouMean returns ": did you mean …?" with the nearest known word, "" if none is near.
func DidYouMean[T ~string](word string, known []T) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf(": did you mean %s?", near)
	}
	return ""
}

// Nearest returns the known word that was probably meant: one that differs only in case, blanks, "-" and "_", otherwise
// the one with the fewest corrections, or "".
func Nearest[T ~string](word string, known []T) T {
	bare := bareWord(word)
	for _, candidate := range known {
		if bare != "" && bareWord(string(candidate)) == bare {
			return candidate
		}
	}
	best, fewest := T(""), maxCorrections(word)+1
	for _, candidate := range known {
		if n := distance(strings.ToLower(word), strings.ToLower(string(candidate)), fewest); n < fewest {
			best, fewest = candidate, n
		}
	}
	return best
}

// maxCorrections returns how many corrections are allowed in a misspelt word of this length: a short word soon becomes
// another one.
func maxCorrections(word string) int {
	switch length := utf8.RuneCountInString(word); {
	case length < 3:
		return 0
	case length < 6:
		return 1
	}
	return 2
}

var joiners = strings.NewReplacer("-", "", "_", "", " ", "")

func bareWord(word string) string { return strings.ToLower(joiners.Replace(word)) }

// distance returns the number of insertions, deletions, replacements and swaps between two words, or limit if their
// lengths already differ by it.
func distance(a, b string, limit int) int {
	from, to := []rune(a), []rune(b)
	if d := len(from) - len(to); d >= limit || -d >= limit {
		return limit
	}
	rows := make([][]int, len(from)+1)
	for i := range rows {
		rows[i] = make([]int, len(to)+1)
		rows[i][0] = i
		for j := 1; j <= len(to); j++ {
			switch {
			case i == 0:
				rows[i][j] = j
			case from[i-1] == to[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j], rows[i][j-1], rows[i-1][j-1])
			}
			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(from)][len(to)]
}
