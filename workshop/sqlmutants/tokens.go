package sqlmutants

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// kind is the kind of a token.
type kind int

const (
	word    kind = iota // a keyword or a name
	literal             // a string, a number, a quoted name or a parameter
	macro               // {{name}} or {{name(args)}}, which the loader of the statements replaces
	symbol              // an operator, a parenthesis, a comma or a semicolon
)

// token is one token of a statement. Comments and spaces are no tokens.
type token struct {
	kind     kind
	text     string // words are in lower case
	from, to int    // its place in the text
	depth    int    // the number of groups around it
	closes   int    // the index of the token that closes the group which this token opens, or 0
}

// opens reports whether the token opens a group. A group is between parentheses or between case and end.
func (t token) opens() bool { return t.kind == symbol && t.text == "(" || t.is("case") }

// ends reports whether the token closes a group.
func (t token) ends() bool { return t.kind == symbol && t.text == ")" || t.is("end") }

// is reports whether the token is one of the words.
func (t token) is(words ...string) bool { return t.kind == word && slices.Contains(words, t.text) }

// pattern matches the next token. The order of the alternatives matters.
var pattern = regexp.MustCompile(`(?s)^(?:` + strings.Join([]string{
	`(?P<skip>\s+|--[^\n]*|/\*.*?\*/)`,
	`(?P<literal>[eE]?'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\$.*?\$\$|[$?:@]\w+|\?|\d[\w.]*)`,
	`(?P<word>[\pL_][\pL\d_]*)`,
	`(?P<symbol>::|->>|->|\|\||<>|<=|>=|!=|==|<<|>>|@>|.)`,
}, "|") + `)`)

// tokenize returns the tokens of a statement. It returns an error if a group is not closed.
func tokenize(text string) ([]token, error) {
	var tokens []token
	var open []int
	for at := 0; at < len(text); {
		t := token{from: at}
		if strings.HasPrefix(text[at:], "{{") {
			t.kind, t.to = macro, endOfMacro(text, at)
			t.text = text[at:t.to]
		} else {
			match := pattern.FindStringSubmatch(text[at:])
			t.to, t.text = at+len(match[0]), match[0]
			switch {
			case match[1] != "":
				at = t.to
				continue
			case match[2] != "":
				t.kind = literal
			case match[3] != "":
				t.kind, t.text = word, strings.ToLower(t.text)
			default:
				t.kind = symbol
			}
		}
		at, t.depth = t.to, len(open)
		switch {
		case t.opens():
			open = append(open, len(tokens))
		case t.ends():
			if len(open) == 0 || tokens[open[len(open)-1]].is("case") != t.is("end") {
				return nil, fmt.Errorf("%q at %d closes no group", t.text, t.from)
			}
			tokens[open[len(open)-1]].closes = len(tokens)
			open = open[:len(open)-1]
		}
		tokens = append(tokens, t)
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("the group at %d is not closed", tokens[open[len(open)-1]].from)
	}
	return tokens, nil
}

// endOfMacro returns the end of the macro that begins at the given place. The arguments of a macro may have macros.
func endOfMacro(text string, at int) int {
	depth := 0
	for at < len(text) {
		switch {
		case strings.HasPrefix(text[at:], "{{"):
			depth++
			at += 2
		case strings.HasPrefix(text[at:], "}}"):
			at += 2
			if depth--; depth == 0 {
				return at
			}
		default:
			at++
		}
	}
	return len(text)
}

var (
	spaces    = regexp.MustCompile(`\s+`)
	comment   = regexp.MustCompile(`--[^\n]*`)
	parameter = regexp.MustCompile(`\?(\d+)`)
	used      = regexp.MustCompile(`[$?]\d+`)
	schema    = regexp.MustCompile(`\bholdfast\.`)
)

// fold returns a text in the form in which it identifies a mutant. The form is the same in both dialects if only
// spaces, comments, the schema and the marks of parameters differ.
func fold(text string) string {
	text = spaces.ReplaceAllString(comment.ReplaceAllString(text, ""), " ")
	return strings.TrimSpace(schema.ReplaceAllString(parameter.ReplaceAllString(text, "$$$1"), ""))
}
