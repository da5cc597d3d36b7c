package statement

import (
	"slices"
	"strconv"
	"strings"
)

// Dialect is the SQL that an engine executes.
type Dialect int

// The dialects.
const (
	PostgreSQL Dialect = iota
	SQLite
)

// timeParameter replaces the time until the other parameters of the statement are known.
const timeParameter = "?now"

// macro has the limits for the number of arguments, and a text for each dialect. expand replaces the words in < >.
type macro struct {
	least, most int
	texts       [2]string
}

// macros has the macros by name. The package comment describes them.
var macros = map[string]macro{
	"now":    {0, 0, [2]string{"now()", timeParameter}},
	"clock":  {0, 0, [2]string{"clock_timestamp()", timeParameter}},
	"epoch":  {0, 0, [2]string{"timestamptz 'epoch'", "0"}},
	"at":     {1, 1, [2]string{"timestamptz 'epoch' + <operand> * interval '1 microsecond'", "<operand>"}},
	"span":   {1, 1, [2]string{"<operand> * interval '1 microsecond'", "<operand>"}},
	"micros": {1, 1, [2]string{"(extract(epoch from <first>) * 1000000)::bigint", "<operand>"}},
	"age": {1, 1, [2]string{"extract(epoch from now() - <operand>)",
		"((" + timeParameter + " - <operand>) / 1000000.0)"}},
	"queue": {1, 1, [2]string{"split_part(<first>, '.', 1)",
		"substr(<first> || '.', 1, instr(<first> || '.', '.') - 1)"}},
	"in":   {1, 1, [2]string{"= any (<first>)", "in (select value from json_each(<first>))"}},
	"none": {1, 1, [2]string{"cardinality(<first>) = 0", "<first> = '[]'"}},
	"lock": {0, 9, [2]string{"for update <all>", ""}},
	"size": {1, 1, [2]string{"pg_column_size(<first>)", "octet_length(<first>)"}},
	"list": {2, 2, [2]string{"unnest(<second>) as <alias> (<column>)",
		"(select value as <column> from json_each(<second>)) as <alias>"}},
	"rows": {3, 99, [2]string{"json_to_recordset(<second>) as <first> (<others>)",
		"(select <values> from json_each(<second>)) as <first>"}},
}

// expand returns the text of the macro with its arguments.
func (m macro) expand(d Dialect, args []string) string {
	filled := append(slices.Clone(args), "", "")
	others := args[min(2, len(args)):]
	values := make([]string, len(others))
	for i, column := range others {
		name, _, _ := strings.Cut(column, " ")
		values[i] = "value ->> '" + name + "' as " + name
	}
	alias, column, dotted := strings.Cut(filled[0], ".")
	if strings.Contains(m.texts[d], "<column>") && !dotted {
		panic("the .sql files have a list without a column: " + alias)
	}
	words := strings.NewReplacer("<first>", filled[0], "<operand>", operand(filled[0]), "<second>", filled[1],
		"<alias>", alias, "<column>", column,
		"<all>", strings.Join(args, ", "), "<others>", strings.Join(others, ", "), "<values>", strings.Join(values, ", "))
	return strings.TrimSpace(words.Replace(m.texts[d]))
}

// operand returns an expression that can be an operand.
func operand(x string) string {
	isSimple := x != "" && strings.TrimLeftFunc(x, func(c rune) bool { return isOfWord(c) || strings.ContainsRune(".$:?", c) }) == ""
	if _, parenthesized := arguments(x); isSimple || parenthesized == len(x) {
		return x
	}
	return "(" + x + ")"
}

// finish returns the text of a whole statement as the engine takes it.
func (d Dialect) finish(text string) string {
	if d == PostgreSQL {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	last := 0
	for text = strings.ReplaceAll(text, "holdfast.", ""); ; {
		i := strings.IndexAny(text, "$?:")
		if i < 0 {
			b.WriteString(text)
			break
		}
		b.WriteString(text[:i])
		sign, rest := text[i], text[i+1:]
		name := word(strings.TrimPrefix(rest, ":"))
		switch n := digits(rest); {
		case sign != ':' && n != "":
			number, _ := strconv.Atoi(n)
			last = max(last, number)
			b.WriteString("?" + n)
			rest = rest[len(n):]
		case sign == ':' && strings.HasPrefix(rest, ":") && name != "":
			rest = strings.TrimPrefix(rest[1+len(name):], "[]") // a cast
		default:
			b.WriteByte(sign)
		}
		text = rest
	}
	return strings.ReplaceAll(b.String(), timeParameter, "?"+strconv.Itoa(last+1))
}

// digits returns the digits at the beginning of a text.
func digits(text string) string {
	return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
}
