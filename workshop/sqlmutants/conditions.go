package sqlmutants

import (
	"fmt"
	"slices"
	"strings"
)

// Mutant is a statement without one operand of a condition.
type Mutant struct {
	Statement string // the name of the statement, or of the part of statements
	Operand   string // the dropped operand; a number sign and a number follow if the statement has it several times
	With      string // the value of the mutated operand: true if and joins it to others, false if or does
	text      string // what replaces the operand
	from, to  int    // the place of the operand in the text
}

// String returns the name of the mutant.
func (m Mutant) String() string { return fmt.Sprintf("%s: %s -> %s", m.Statement, m.Operand, m.With) }

// mutants returns the mutants of a statement, or of a part that statements include, in the order of their places. tables
// is the result of tableParts.
func mutants(name, text string, tables map[string]bool) ([]Mutant, error) {
	tokens, err := tokenize(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := finder{name: name, text: text, tokens: tokens, tables: tables, covered: make([]bool, len(tokens))}
	f.clauses()
	f.values()
	slices.SortStableFunc(f.found, func(a, b Mutant) int { return a.from - b.from })
	times := make(map[string]int)
	for i, m := range f.found {
		key := m.Operand + m.With
		if times[key]++; times[key] > 1 {
			f.found[i].Operand += fmt.Sprintf(" #%d", times[key])
		}
	}
	return f.found, nil
}

// finder finds the operands of the conditions in a statement.
type finder struct {
	name, text string
	tokens     []token
	tables     map[string]bool
	covered    []bool // by token: whether it is at the top level of a condition that was found
	found      []Mutant
}

// clauses finds the conditions that a keyword begins: where, on, having, when, and the first argument of iif.
func (f *finder) clauses() {
	for i, t := range f.tokens {
		switch {
		case t.is("where", "having"):
			// A where clause before "do" names a partial index.
			if end := f.end(i + 1); end == len(f.tokens) || !f.tokens[end].is("do") {
				f.condition(i+1, end)
			}
		case t.is("on") && !f.word(i+1, "conflict") && !f.word(i-1, "distinct"):
			f.condition(i+1, f.end(i+1))
		case t.is("case") && f.word(i+1, "when"):
			for j := i + 1; j < t.closes; j = f.next(j) {
				if f.tokens[j].is("when") {
					f.condition(j+1, f.end(j+1))
				}
			}
		case t.is("iif"):
			f.condition(i+2, f.end(i+2))
		case t.kind == macro && f.tables[macroName(t.text)] && i+1 < len(f.tokens):
			// The part has a where clause, which continues here.
			if f.tokens[i+1].is("and") {
				f.covered[i+1] = true
				f.condition(i+2, f.end(i+2))
			} else if f.tables[macroName(t.text)+" and"] {
				f.condition(i+1, f.end(i+1))
			}
		}
	}
}

// values finds the conditions whose value is selected or given to a function, and the conditions that are parts. A
// condition is found before those in it.
func (f *finder) values() {
	var joints []int
	for i, t := range f.tokens {
		if t.is("and", "or") {
			joints = append(joints, i)
		}
	}
	slices.SortStableFunc(joints, func(a, b int) int { return f.tokens[a].depth - f.tokens[b].depth })
	for _, i := range joints {
		if from := f.begin(i); !f.covered[i] && len(f.split(from, f.end(from), f.tokens[i].text)) > 1 {
			f.condition(from, f.end(from))
		}
	}
	if len(f.tokens) > 0 && !f.covered[0] && f.end(0) == len(f.tokens) && f.compares() {
		f.condition(0, len(f.tokens))
	}
}

// compares reports whether the whole text is one comparison.
func (f *finder) compares() bool {
	for i := 0; i < len(f.tokens); i = f.next(i) {
		if f.tokens[i].is("select", "with", "insert", "update", "delete") {
			return false
		}
		if f.tokens[i].is("is", "in", "like") || slices.Contains([]string{"=", "<", ">", "<=", ">=", "<>"}, f.tokens[i].text) {
			return true
		}
	}
	return false
}

// condition adds the mutants of the condition in a range of tokens.
func (f *finder) condition(from, to int) {
	if from >= to {
		return
	}
	for i := from; i < to; i = f.next(i) {
		f.covered[i] = true
	}
	if len(f.split(from, to, "or")) > 1 {
		f.add(from, to, "true")
	}
	f.operands(from, to, true)
}

// operands adds the operands of the and or the or at the top level of a range. If there is neither, the range is one
// operand of a condition, which it adds only if whole is set. It does the same with operands in parentheses.
func (f *finder) operands(from, to int, whole bool) {
	with, list := "false", f.split(from, to, "or")
	if len(list) == 1 {
		with, list = "true", f.split(from, to, "and")
	}
	for _, operand := range list {
		from, to := operand[0], operand[1]
		if whole || len(list) > 1 {
			f.add(from, to, with)
		}
		if len(list) > 1 && with == "false" {
			f.operands(from, to, false)
			continue
		}
		if from < to && f.tokens[from].is("not") {
			from++
		}
		if from < to && f.tokens[from].text == "(" && f.tokens[from].closes == to-1 {
			for i := from + 1; i < to-1; i = f.next(i) {
				f.covered[i] = true
			}
			f.operands(from+1, to-1, false)
		}
	}
}

// split returns the ranges between the words at the top level of a range. The and of between is none of them.
func (f *finder) split(from, to int, separator string) (list [][2]int) {
	between := false
	start := from
	for i := from; i < to; i = f.next(i) {
		switch {
		case f.tokens[i].is("between"):
			between = true
		case f.tokens[i].is("and") && between:
			between = false
		case f.tokens[i].is(separator):
			list = append(list, [2]int{start, i})
			start = i + 1
		}
	}
	return append(list, [2]int{start, to})
}

// add adds the mutant without the operand in a range of tokens. It leaves out constants, and operands that the
// statement with this part continues.
func (f *finder) add(from, to int, with string) {
	if from >= to || to == from+1 && f.tokens[from].is("true", "false") {
		return
	}
	last := f.tokens[to-1]
	if last.kind == symbol && last.text != ")" || last.is("and", "or") {
		return
	}
	place := [2]int{f.tokens[from].from, last.to}
	operand := f.text[place[0]:place[1]]
	f.found = append(f.found, Mutant{f.name, fold(operand), with, constant(operand, with), place[0], place[1]})
}

// constant returns an expression with the given value that has the parameters of an operand. The number of the
// parameter {{now}} depends on them.
func constant(operand, value string) string {
	joint := map[string]string{"true": " or ", "false": " and "}[value]
	expression := value
	for _, number := range used.FindAllString(comment.ReplaceAllString(operand, ""), -1) {
		expression += joint + number + " is null"
	}
	if expression == value {
		return value
	}
	return "(" + expression + ")"
}

// stops are the words after a condition.
var stops = strings.Fields(`where on having group order limit offset fetch for window union except intersect returning do
	join left right full inner cross natural set values when then else as from`)

// end returns the end of the condition that begins at a token.
func (f *finder) end(from int) int {
	for i := from; i < len(f.tokens); i = f.next(i) {
		t := f.tokens[i]
		switch {
		case t.ends(), t.kind == symbol && (t.text == "," || t.text == ";"):
			return i
		case t.is("from") && f.word(i-1, "distinct"): // is distinct from
		case t.is("left", "right") && i+1 < len(f.tokens) && f.tokens[i+1].text == "(": // a function
		case t.is(stops...), t.kind == macro && macroName(t.text) == "lock":
			return i
		}
	}
	return len(f.tokens)
}

// begin returns the first token of the expression with the given token.
func (f *finder) begin(at int) int {
	from := at
	for i := 0; i < at; { // the groups before the token are skipped, the groups around it are not
		t := f.tokens[i]
		switch {
		case t.opens() && t.closes < at:
			i = t.closes + 1
			continue
		case t.opens(), t.is(stops...), t.is("select", "distinct", "by"), t.kind == symbol && (t.text == "," || t.text == ";"):
			from = i + 1
		case i == 0:
			from = 0
		}
		i++
	}
	return from
}

// next returns the token after the given one, or after the group that it opens.
func (f *finder) next(i int) int {
	if closes := f.tokens[i].closes; closes > 0 {
		return closes + 1
	}
	return i + 1
}

// word reports whether the token with the index is one of the words.
func (f *finder) word(i int, words ...string) bool {
	return i >= 0 && i < len(f.tokens) && f.tokens[i].is(words...)
}

// macroName returns the name of a macro.
func macroName(text string) string {
	name, _, _ := strings.Cut(strings.Trim(text, "{}"), "(")
	return strings.TrimSpace(name)
}
