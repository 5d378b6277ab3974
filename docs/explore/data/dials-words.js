explore.dialWords({});
