package strictyaml

import (
	"bytes"
	"unicode/utf8"
)

// scanner counts the tokens of a YAML text without keeping any of them. It follows the scanner of the YAML library,
// which has no other way to read a text than to make a node of about 200 bytes for nearly every token. Where the
// library stops with an error, the scanner may go on.
type scanner struct {
	data []byte
	// at is the offset of the next byte; index, line and column are its position in characters.
	at, index, line, column int
	// indent is the column of the innermost open block, -1 if there is none; indents are those around it.
	indent  int
	indents []int
	// flow is the number of open brackets.
	flow int
	// key is the token outside of brackets that a ":" would make a key; keyAllowed: the next token may be one.
	key        simpleKey
	keyAllowed bool
	tokens     int
}

// simpleKey is the position of a possible key.
type simpleKey struct {
	possible            bool
	index, line, column int
}

// maxKey is how long a key may be, in characters.
const maxKey = 1024

// exceedsTokens reports whether a YAML text has more tokens than most. It reads no further than that. Each comment is a
// token here.
func exceedsTokens(data []byte, most int) bool {
	s := &scanner{data: data, indent: -1, keyAllowed: true}
	for s.tokens <= most && s.next() {
		s.tokens++
	}
	return s.tokens > most
}

// next reads one token; false at the end of the text.
func (s *scanner) next() bool {
	s.toToken()
	if s.flow == 0 {
		s.unroll(s.column)
	}
	if s.atEnd() {
		return false
	}
	if s.column == 0 && (s.peek(0) == '%' || s.atMarker()) {
		s.boundary()
		return true
	}
	switch c := s.peek(0); {
	case c == '[' || c == '{':
		s.saveKey()
		s.flow++
		s.advance()
	case c == ']' || c == '}':
		s.closeBracket()
	case c == ',' || c == '-' && s.blank(1):
		s.entry(c == '-')
	case c == '?' && (s.flow > 0 || s.blank(1)):
		s.entry(true)
	case c == ':' && (s.flow > 0 || s.blank(1)):
		s.value()
	default:
		s.scalar(c)
	}
	return true
}

// scalar reads an alias, anchor, tag or scalar that begins with this character.
func (s *scanner) scalar(c byte) {
	if (c == '|' || c == '>') && s.flow == 0 {
		s.key, s.keyAllowed = simpleKey{}, true
		s.block()
		return
	}
	s.saveKey()
	s.keyAllowed = false
	switch c {
	case '*', '&':
		s.advance()
		s.skip(func(c byte) bool {
			return c == '_' || c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		})
	case '!':
		for !s.blank(0) {
			s.advance()
		}
	case '\'', '"':
		s.quoted(c)
	default:
		s.plain()
	}
}

// toToken skips blanks, line breaks and comments.
func (s *scanner) toToken() {
	for !s.atEnd() {
		switch c := s.peek(0); {
		case s.column == 0 && bytes.HasPrefix(s.data[s.at:], []byte("\ufeff")), c == ' ',
			c == '\t' && (s.flow > 0 || !s.keyAllowed):
			s.advance()
		case c == '#':
			s.tokens++
			s.toBreak()
		case s.breaks(0):
			s.advance()
			s.keyAllowed = s.keyAllowed || s.flow == 0
		default:
			return
		}
	}
}

// boundary reads a document marker, or a line with a directive.
func (s *scanner) boundary() {
	s.unroll(-1)
	s.key, s.keyAllowed = simpleKey{}, false
	if s.peek(0) == '%' {
		s.toBreak()
		return
	}
	for range 3 {
		s.advance()
	}
}

func (s *scanner) closeBracket() {
	if s.flow > 0 {
		s.flow--
	} else {
		s.key = simpleKey{}
	}
	s.keyAllowed = false
	s.advance()
}

// entry reads a ",", or a "-" or "?", which open a block.
func (s *scanner) entry(opens bool) {
	if s.flow == 0 {
		if opens {
			s.roll(s.column)
		}
		s.key, s.keyAllowed = simpleKey{}, true
	}
	s.advance()
}

// value reads a ":". The key before it opens a block.
func (s *scanner) value() {
	if s.flow == 0 {
		k := s.key
		isKey := k.possible && k.line == s.line && k.index+maxKey >= s.index
		if isKey {
			s.roll(k.column)
		} else {
			s.roll(s.column)
		}
		s.key, s.keyAllowed = simpleKey{}, !isKey
	}
	s.advance()
}

// saveKey notes that the next token may be a key.
func (s *scanner) saveKey() {
	if s.flow == 0 && s.keyAllowed {
		s.key = simpleKey{possible: true, index: s.index, line: s.line, column: s.column}
	}
}

func (s *scanner) roll(column int) {
	if s.indent < column {
		s.indents, s.indent = append(s.indents, s.indent), column
	}
}

func (s *scanner) unroll(column int) {
	for s.indent > column {
		last := len(s.indents) - 1
		s.indent, s.indents = s.indents[last], s.indents[:last]
	}
}

// plain reads a scalar without quotes, and the blanks after it.
func (s *scanner) plain() {
	broken, first := false, true
	for (s.column != 0 || !s.atMarker()) && s.peek(0) != '#' {
		for !s.blank(0) && (first || !s.endsPlain()) {
			s.advance()
			first, broken = false, false
		}
		if !s.blank(0) || s.atEnd() {
			break
		}
		for !s.atEnd() && s.blank(0) {
			broken = broken || s.breaks(0)
			s.advance()
		}
		if s.flow == 0 && s.column <= s.indent {
			break
		}
	}
	s.keyAllowed = broken
}

// endsPlain reports whether the next character ends a scalar without quotes.
func (s *scanner) endsPlain() bool {
	c := s.peek(0)
	return c == ':' && s.blank(1) || s.flow > 0 && bytes.IndexByte([]byte(",?[]{}"), c) >= 0
}

// quoted reads a scalar in quotes.
func (s *scanner) quoted(quote byte) {
	s.advance()
	for !s.atEnd() {
		c := s.peek(0)
		twice := c == quote && quote == '\'' && s.peek(1) == quote
		if c == '\\' && quote == '"' || twice {
			s.advance()
		} else if c == quote {
			s.advance()
			return
		}
		s.advance()
	}
}

// block reads a scalar after "|" or ">": the lines that are indented by more than the block around it.
func (s *scanner) block() {
	indent := 0
	s.advance()
	s.skip(func(c byte) bool {
		if '1' <= c && c <= '9' {
			indent = int(c-'0') + max(s.indent, 0)
		}
		return c == '+' || c == '-' || '1' <= c && c <= '9'
	})
	s.skip(func(c byte) bool { return c == ' ' || c == '\t' })
	if s.peek(0) == '#' {
		s.toBreak()
	}
	if !s.breaks(0) {
		return
	}
	s.advance()
	indent = s.blockIndent(indent)
	for s.column == indent && !s.atEnd() {
		s.toBreak()
		if !s.atEnd() {
			s.advance()
		}
		s.blockIndent(indent)
	}
}

// blockIndent skips empty lines and the indentation of the next one, and returns how far a block scalar is indented; 0:
// as far as its first line.
func (s *scanner) blockIndent(indent int) int {
	widest := 0
	for {
		s.skip(func(c byte) bool { return c == ' ' && (indent == 0 || s.column < indent) })
		widest = max(widest, s.column)
		if s.atEnd() || !s.breaks(0) {
			break
		}
		s.advance()
	}
	if indent == 0 {
		return max(widest, s.indent+1, 1)
	}
	return indent
}

// skip advances over the ASCII characters that are wanted.
func (s *scanner) skip(wanted func(c byte) bool) {
	for !s.atEnd() && wanted(s.peek(0)) {
		s.advance()
	}
}

func (s *scanner) toBreak() {
	for !s.atEnd() && !s.breaks(0) {
		s.advance()
	}
}

// advance goes to the next character; the two of a line break of Windows are one.
func (s *scanner) advance() {
	breaks := s.breaks(0)
	if s.peek(0) == '\r' && s.peek(1) == '\n' {
		s.at++
		s.index++
	}
	_, size := utf8.DecodeRune(s.data[s.at:])
	s.at += size
	s.index++
	s.column++
	if breaks {
		s.line, s.column = s.line+1, 0
	}
}

// atEnd reports the end of the text: the library stops at a NUL too.
func (s *scanner) atEnd() bool { return s.peek(0) == 0 }

// peek returns the byte at a distance, 0 after the end.
func (s *scanner) peek(ahead int) byte {
	if at := s.at + ahead; at < len(s.data) {
		return s.data[at]
	}
	return 0
}

// blank reports whether a blank, a line break or the end is at a distance.
func (s *scanner) blank(ahead int) bool {
	c := s.peek(ahead)
	return c == ' ' || c == '\t' || c == 0 || s.breaks(ahead)
}

// breaks reports whether a line break is at a distance; YAML 1.1 has three outside of ASCII.
func (s *scanner) breaks(ahead int) bool {
	switch s.peek(ahead) {
	case '\n', '\r':
		return true
	case 0xc2:
		return s.peek(ahead+1) == 0x85
	case 0xe2:
		return s.peek(ahead+1) == 0x80 && (s.peek(ahead+2) == 0xa8 || s.peek(ahead+2) == 0xa9)
	}
	return false
}

// atMarker reports whether "---" or "..." follows.
func (s *scanner) atMarker() bool {
	rest := s.data[s.at:]
	return (bytes.HasPrefix(rest, []byte("---")) || bytes.HasPrefix(rest, []byte("..."))) && s.blank(3)
}
