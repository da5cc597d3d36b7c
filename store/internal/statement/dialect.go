package statement

import (
	"regexp"
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

// macro returns the text of a macro with its arguments.
type macro struct {
	args   int // number of arguments, or the minimum
	more   bool
	render func(args []string) string
}

// macros returns the macros by name. The package comment describes each macro.
func (d Dialect) macros() map[string]macro {
	if d == SQLite {
		return sqlite()
	}
	return postgres()
}

func postgres() map[string]macro {
	const microsecond = " * interval '1 microsecond'"
	return map[string]macro{
		"now":    constant("now()"),
		"clock":  constant("clock_timestamp()"),
		"epoch":  constant("timestamptz 'epoch'"),
		"at":     of(func(x string) string { return "timestamptz 'epoch' + " + operand(x) + microsecond }),
		"span":   of(func(x string) string { return operand(x) + microsecond }),
		"micros": of(func(x string) string { return "(extract(epoch from " + x + ") * 1000000)::bigint" }),
		"age":    of(func(x string) string { return "extract(epoch from now() - " + operand(x) + ")" }),
		"queue":  of(func(x string) string { return "split_part(" + x + ", '.', 1)" }),
		"in":     of(func(x string) string { return "= any (" + x + ")" }),
		"none":   of(func(x string) string { return "cardinality(" + x + ") = 0" }),
		"lock": {more: true, render: func(args []string) string {
			return strings.TrimSpace("for update " + strings.Join(args, ", "))
		}},
		"list": {args: 2, render: func(args []string) string {
			alias, column := dotted(args[0])
			return "unnest(" + args[1] + ") as " + alias + " (" + column + ")"
		}},
		"rows": {args: 3, more: true, render: func(args []string) string {
			return "json_to_recordset(" + args[1] + ") as " + args[0] + " (" + strings.Join(args[2:], ", ") + ")"
		}},
	}
}

func sqlite() map[string]macro {
	same := of(operand)
	return map[string]macro{
		"now":    constant(timeParameter),
		"clock":  constant(timeParameter),
		"epoch":  constant("0"),
		"at":     same,
		"span":   same,
		"micros": same,
		"age":    of(func(x string) string { return "((" + timeParameter + " - " + operand(x) + ") / 1000000.0)" }),
		"queue":  of(func(x string) string { return "substr(" + x + " || '.', 1, instr(" + x + " || '.', '.') - 1)" }),
		"in":     of(func(x string) string { return "in (select value from json_each(" + x + "))" }),
		"none":   of(func(x string) string { return x + " = '[]'" }),
		"lock":   {more: true, render: func([]string) string { return "" }},
		"list": {args: 2, render: func(args []string) string {
			alias, column := dotted(args[0])
			return "(select value as " + column + " from json_each(" + args[1] + ")) as " + alias
		}},
		"rows": {args: 3, more: true, render: func(args []string) string {
			var columns []string
			for _, column := range args[2:] {
				name, _, _ := strings.Cut(column, " ")
				columns = append(columns, "value ->> '"+name+"' as "+name)
			}
			return "(select " + strings.Join(columns, ", ") + " from json_each(" + args[1] + ")) as " + args[0]
		}},
	}
}

// constant returns a macro without arguments, with the given text.
func constant(is string) macro { return macro{render: func([]string) string { return is }} }

// of returns a macro with one argument, x.
func of(render func(x string) string) macro {
	return macro{args: 1, render: func(args []string) string { return render(args[0]) }}
}

var simple = regexp.MustCompile(`^[\w.$:?]+$`)

// operand returns x, in parentheses if it is a compound expression.
func operand(x string) string {
	if _, parenthesized := arguments(x); simple.MatchString(x) || parenthesized == len(x) {
		return x
	}
	return "(" + x + ")"
}

// dotted splits the argument alias.column of the macro list.
func dotted(x string) (alias, column string) {
	alias, column, ok := strings.Cut(x, ".")
	if !ok {
		panic("the .sql files have a list without a column: " + x)
	}
	return alias, column
}

// timeParameter marks the time until finish knows the number of the last parameter.
const timeParameter = "?now"

var (
	cast      = regexp.MustCompile(`::\w+(\[\])?`)
	parameter = regexp.MustCompile(`[$?](\d+)`)
)

// finish returns a whole statement in the form that the engine accepts.
func (d Dialect) finish(text string) string {
	if d == PostgreSQL {
		return text
	}
	text = strings.ReplaceAll(cast.ReplaceAllString(text, ""), "holdfast.", "")
	last := 0
	text = parameter.ReplaceAllStringFunc(text, func(match string) string {
		n, _ := strconv.Atoi(match[1:])
		last = max(last, n)
		return "?" + match[1:]
	})
	return strings.ReplaceAll(text, timeParameter, "?"+strconv.Itoa(last+1))
}
