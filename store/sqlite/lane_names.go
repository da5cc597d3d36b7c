package sqlite

import "context"

// LaneNames implements store.Dispatch.
func (s *Store) LaneNames(ctx context.Context) ([]string, error) {
	var names []string
	err := s.read(ctx, "list lanes", func(ctx context.Context, c *session) error {
		var err error
		names, err = laneNames(ctx, c)
		return err
	})
	return names, err
}

func laneNames(ctx context.Context, q querier) ([]string, error) {
	rows, err := all[struct{ Name string }](ctx, q, "lane_names")
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.Name
	}
	return names, err
}
