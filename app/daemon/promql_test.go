package daemon

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The parser of Prometheus would raise the Go version and other dependencies of this module, so the tests have a parser
// of their own. It knows the part of PromQL that the dashboard and the rules use, and refuses all else.

// query is a parsed PromQL expression.
type query struct {
	selectors []selector
	grouping  []string   // all labels in by and on
	sets      [][]string // the labels of each aggregation that no other aggregation contains
}

// selector selects series of one metric.
type selector struct {
	metric   string
	function string // the function or aggregation that contains it directly, or ""
	ranged   bool
	matchers []matcher
}

type matcher struct{ label, value string }

// labels returns the labels that the result may have.
func (q query) labels() map[string]bool {
	found := make(map[string]bool)
	for _, label := range slices.Concat(q.sets...) {
		found[label] = true
	}
	return found
}

var (
	promToken = regexp.MustCompile(`^(?:"(?:[^"\\]|\\.)*"|[0-9]+(?:\.[0-9]+)?[smhdw]?|[a-zA-Z_][a-zA-Z0-9_]*|\$__rate_interval|` +
		`=~|!~|!=|==|>=|<=|[-+*/<>=(){}\[\],])`)
	promName     = regexp.MustCompile(`^[a-zA-Z_]`)
	promNumber   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	promDuration = regexp.MustCompile(`^([0-9]+[smhdw]|\$__rate_interval)$`)
)

// promBinary are the operators.
var promBinary = []string{"+", "-", "*", "/", ">", "<", ">=", "<=", "==", "!=", "and", "or", "unless"}

// promAggregations are the aggregations without a parameter.
var promAggregations = []string{"sum", "max", "min", "count", "avg"}

// promFunctions are functions of one vector, and whether the vector has a range. histogram_quantile has a number first.
var promFunctions = map[string]bool{
	"rate": true, "increase": true, "present_over_time": true, "absent": false, "histogram_quantile": false,
}

type promParser struct {
	tokens []string
	depth  int // of aggregations
	query
}

// parsePromQL parses an expression.
func parsePromQL(text string) (_ query, err error) {
	var p promParser
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		token := promToken.FindString(text)
		if token == "" {
			return query{}, fmt.Errorf("unknown token at %.20q", text)
		}
		p.tokens, text = append(p.tokens, token), text[len(token):]
	}
	defer func() {
		if failed, ok := recover().(error); ok {
			err = failed
		}
	}()
	p.binary("")
	if len(p.tokens) > 0 {
		p.fail()
	}
	return p.query, nil
}

func (p *promParser) fail() { panic(fmt.Errorf("syntax error before %q", strings.Join(p.tokens, " "))) }

// peek returns the next token, or "" at the end.
func (p *promParser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *promParser) next() string {
	token := p.peek()
	if token == "" {
		p.fail()
	}
	p.tokens = p.tokens[1:]
	return token
}

func (p *promParser) expect(token string) {
	if p.peek() != token {
		p.fail()
	}
	p.next()
}

// accept skips a token if it is next.
func (p *promParser) accept(token string) bool {
	if p.peek() != token {
		return false
	}
	p.next()
	return true
}

// binary parses operands and the operators between them. function is what contains the expression directly.
func (p *promParser) binary(function string) {
	p.operand(function)
	for slices.Contains(promBinary, p.peek()) {
		p.next()
		if p.accept("on") {
			p.labelList()
		}
		p.operand(function)
	}
}

func (p *promParser) operand(function string) {
	switch token := p.next(); {
	case promNumber.MatchString(token):
	case token == "(":
		p.binary(function)
		p.expect(")")
	case slices.Contains(promAggregations, token):
		p.aggregation(token)
	case promName.MatchString(token) && p.peek() == "(":
		p.call(token)
	case promName.MatchString(token) && !slices.Contains(promBinary, token):
		p.selector(token, function)
	default:
		p.fail()
	}
}

func (p *promParser) aggregation(name string) {
	var by []string
	if p.accept("by") {
		by = p.labelList()
	}
	if p.depth == 0 {
		p.sets = append(p.sets, by)
	}
	p.depth++
	p.expect("(")
	p.binary(name)
	p.expect(")")
	p.depth--
}

func (p *promParser) call(name string) {
	if _, known := promFunctions[name]; !known {
		panic(fmt.Errorf("unknown function %s", name))
	}
	p.expect("(")
	if name == "histogram_quantile" {
		if !promNumber.MatchString(p.next()) {
			p.fail()
		}
		p.expect(",")
	}
	p.binary(name)
	p.expect(")")
}

// labelList parses labels in parentheses.
func (p *promParser) labelList() (labels []string) {
	p.expect("(")
	for {
		label := p.next()
		if !promName.MatchString(label) {
			p.fail()
		}
		labels = append(labels, label)
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	p.grouping = append(p.grouping, labels...)
	return labels
}

func (p *promParser) selector(metric, function string) {
	s := selector{metric: metric, function: function}
	if p.accept("{") {
		for !p.accept("}") {
			label, operator := p.next(), p.next()
			value, err := strconv.Unquote(p.next())
			if !promName.MatchString(label) || !slices.Contains([]string{"=", "!=", "=~", "!~"}, operator) || err != nil {
				p.fail()
			}
			s.matchers = append(s.matchers, matcher{label, value})
			if !p.accept(",") && p.peek() != "}" {
				p.fail()
			}
		}
	}
	if p.accept("[") {
		s.ranged = true
		if !promDuration.MatchString(p.next()) {
			p.fail()
		}
		p.expect("]")
	}
	if p.accept("offset") && !promDuration.MatchString(p.next()) {
		p.fail()
	}
	if s.ranged != promFunctions[function] {
		panic(fmt.Errorf("%s has a range, or needs one", metric))
	}
	p.selectors = append(p.selectors, s)
}

func TestParsePromQL(t *testing.T) {
	t.Parallel()
	q, err := parsePromQL(`sum by (a, b) (rate(x_total{c="1|2", d!~"e"}[5m])) > 0.5 unless max by (f) (sum by (g) (y offset 1d)) or z`)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(q); got != "{[{x_total rate true [{c 1|2} {d e}]} {y sum false []} {z  false []}] [a b f g] [[a b] [f]]}" {
		t.Error(got)
	}
	for _, wrong := range []string{
		"", "a b", "sum(", "sum(a))", "a >", "> a", "rate(a)", "a[5m]", "rate(a[5])", "rate(a[5m]", "unknown(a)", "sum by (a b) (c)",
		`a{b="c" d="e"}`, `a{b="c`, `a{b=c}`, "sum by () (a)", "histogram_quantile(a)", "a and or b", "a $b", "a offset",
		"max(a[5m])",
	} {
		if q, err := parsePromQL(wrong); err == nil {
			t.Errorf("%q is %v", wrong, q)
		}
	}
}
