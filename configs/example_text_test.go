package configs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// exampleText returns a YAML file with every key, its default and its documentation. It is the content of
// holdfast.example.yaml.
func exampleText() string {
	var out strings.Builder
	out.WriteString(exampleHead)
	c := Default()
	var open []string // the sections of the last key
	for _, s := range c.settings() {
		path := strings.Split(s.key, ".")
		sections, name := path[:len(path)-1], path[len(path)-1]
		same := 0
		for same < min(len(open), len(sections)) && open[same] == sections[same] {
			same++
		}
		if same == 0 {
			out.WriteByte('\n')
			if s.key == "defaults.retry.strategy" {
				out.WriteString(exampleDefaults)
			}
		}
		for i := same; i < len(sections); i++ {
			fmt.Fprintf(&out, "%s%s:\n", indent(i), sections[i])
		}
		open = sections
		for _, line := range wrap(s.doc, 96) {
			fmt.Fprintf(&out, "%s# %s\n", indent(len(sections)), line)
		}
		fmt.Fprintf(&out, "%s%s: %s\n", indent(len(sections)), name, yamlText(s.value))
		if s.key == "webhook.retry_statuses" {
			out.WriteString(exampleSecrets)
		}
	}
	out.WriteString(exampleTypes)
	return out.String()
}

const exampleHead = `# Every key of holdfast's configuration with its default. Delete what you do not change.
#
# Flags override the environment, and the environment overrides this file. The variable of
# worker.concurrency is HOLDFAST_WORKER_CONCURRENCY. In a variable, commas separate the items of a
# list. DATABASE_URL and AMQP_URL are read as well. Durations are written like 250ms, 10s or 168h.
`

const exampleSecrets = `  # Signing keys by name. A payload selects one with "secret_ref". A key is whsec_ and the base64
  # of 24 to 64 bytes. With a list of keys, requests are signed with each, so that a receiver can
  # change its key. HOLDFAST_WEBHOOK_SECRETS_BILLING is the key named billing, and
  # HOLDFAST_WEBHOOK_SECRETS_BILLING_FILE names a file that contains it.
  secrets: {}
  # The hosts to which requests may be signed with each secret. Payloads for other hosts are
  # refused. A secret needs at least one host: api.example.com allows any port,
  # api.example.com:8443 only that port, and *.example.com every name that ends in .example.com.
  # HOLDFAST_WEBHOOK_SECRET_HOSTS_BILLING lists the hosts of billing, separated with commas. A
  # process that only enqueues needs no keys. With the hosts, it checks payloads.
  #
  #   secret_hosts:
  #     billing: [api.example.com, "*.eu.example.com"]
  secret_hosts: {}
`

const exampleDefaults = `# Settings for the tasks of every type.
`

const exampleTypes = `
# Settings for the tasks of one type. A type inherits the keys that it does not set from defaults.
# HOLDFAST_TYPES_HTTP_RETRY_BASE is the variable of retry.base of the type http.
#
#   types:
#     http:
#       queue: webhooks
#       max_attempts: 15
#       retry: {base: 5s, max: 6h}
#     report.monthly:
#       timeout: 2h
#       retry: {strategy: list, delays: [1m, 10m, 1h]}
types: {}
`

func indent(depth int) string { return strings.Repeat("  ", depth) }

// wrap breaks text at spaces into lines of at most width bytes.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

var plainYAML = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

func yamlText(v value) string {
	quote := func(s string) string {
		if plainYAML.MatchString(s) {
			return s
		}
		return strconv.Quote(s)
	}
	if _, isList := v.(interface{ list() }); !isList {
		return quote(v.text())
	}
	items := fields(v.text())
	for i, item := range items {
		items[i] = quote(item)
	}
	return "[" + strings.Join(items, ", ") + "]"
}
