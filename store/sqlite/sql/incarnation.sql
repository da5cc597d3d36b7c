select value from meta where key = 'incarnation'
